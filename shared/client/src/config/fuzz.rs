//! Fuzz target: kubeconfigs and their files, valid and with changed bytes.

use futures::FutureExt as _;
use pod_safety_fuzz::{Draw, fuzz};

use super::*;

/// Addresses in a kubeconfig, and their meaning; `None`: none, or whatever the reader makes of it.
const SERVERS: &[(&str, Option<&str>)] = &[
    ("https://a", Some("https://a")),
    ("'https://a:6443/'", Some("https://a:6443")),
    ("\"https://[::1]:6443/k/\"", Some("https://[::1]:6443/k")),
    ("a:80", Some("http://a:80")),
    ("ftp://a", None),
    ("https://a:99999", None),
    ("'https://a b'", None),
    ("|\n      https://a", None),
    ("12", None),
    ("[]", None),
    ("", None),
];

/// Tokens in a kubeconfig, and what is sent.
const TOKENS: &[(&str, Option<&str>)] = &[
    ("t", Some("Bearer t")),
    ("'t '", Some("Bearer t")),
    ("|\n      t", Some("Bearer t")),
    ("\"t\\r\\n\"", Some("Bearer t")),
    ("tä", Some("Bearer tä")),
    ("\"a\\nb\"", None),
    ("\"a\\0b\"", None),
    ("\" \"", None),
    ("1.5", None),
    ("{}", None),
];

/// Fields whose values this program does not read, and fields that make the configuration invalid when they are wrong.
const OTHERS: &[&str] = &[
    "colour: red",
    "extensions: 7",
    "x: [1, {y: null}]",
    "z: 'a: b'",
    "y: |\n      a\n      b",
    "tls-server-name: ''",
];

const BYTES: &[u8] = b"\0\n\t :-[]{}\"'&*|!%#\xff\xfe\xef";

fn drawn(draw: &mut Draw<'_>) -> (String, Option<&'static str>, Option<&'static str>) {
    let one = |draw: &mut Draw<'_>, all: &'static [(&str, Option<&str>)]| *draw.one_of(all).unwrap();
    let ((server, is), (token, sent)) = (one(draw, SERVERS), one(draw, TOKENS));
    let (in_cluster, in_user) = (draw.word(OTHERS), draw.word(OTHERS));
    let text = format!(
        "clusters:\n- name: c\n  cluster:\n    {in_cluster}\n    insecure-skip-tls-verify: true\n    server: {server}\nusers:\n- name: u\n  \
         user:\n    {in_user}\n    token: {token}\ncontexts:\n- name: x\n  context: {{cluster: c, user: u}}\ncurrent-context: x\n"
    );
    (text, is, sent)
}

fn changed(text: &str, draw: &mut Draw<'_>) -> Vec<u8> {
    let mut bytes = text.as_bytes().to_vec();
    for _ in 0..=draw.below(8) {
        let at = draw.below(bytes.len().max(1));
        let byte = *draw.one_of(BYTES).unwrap();
        match draw.below(4) {
            0 => bytes.insert(at.min(bytes.len()), byte),
            1 if at < bytes.len() => drop(bytes.remove(at)),
            2 => bytes.truncate(at),
            _ if at < bytes.len() => bytes[at] = byte,
            _ => {}
        }
    }
    bytes
}

/// Reads a kubeconfig, and builds everything that a request needs.
fn read(bytes: &[u8]) -> Result<(ResolvedConfig, Arc<Login>), ConfigError> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("config");
    std::fs::write(&path, bytes).unwrap();
    let options = ConnectOptions { kubeconfig: Some(path), ..ConnectOptions::default() };
    let env = Env::real(1);
    let around = ProcessEnv { env: &env, variable: &|_| None };
    match find_source(&options, &around)? {
        ConfigSource::Kubeconfig(chosen) => from_kubeconfig(*chosen, &options, &around),
        ConfigSource::Pod => panic!("a file was named"),
    }
}

fn sent(login: &Login) -> Option<String> {
    let given = login.credentials().now_or_never()?.ok()?;
    Some(String::from_utf8_lossy(given.header?.as_bytes()).into_owned())
}

#[test]
fn fuzz_kubeconfigs() {
    fuzz!(1_500, |draw| {
        let (text, server, token) = drawn(draw);
        let varies = draw.once_in(2);
        let bytes = if varies { changed(&text, draw) } else { text.clone().into_bytes() };
        let result = read(&bytes);
        if let Err(error) = &result {
            let line = crate::error_chain(error);
            assert!(line.contains("/config cannot be used: ") && !line.contains('\n'), "{line}\n{text}");
        }
        if varies {
            return;
        }
        let is_tls = server.is_some_and(|server| server.starts_with("https"));
        match (result, server, token) {
            (Ok((way, login)), Some(server), _) => {
                assert_eq!(way.target.server, server, "{text}");
                // Credentials are never sent without TLS.
                assert_eq!(sent(&login).as_deref(), token.filter(|_| is_tls), "{text}");
            }
            (Err(error), Some(_), Some(_)) => panic!("{error}\n{text}"),
            (Ok(_), None, _) => panic!("accepted\n{text}"),
            (Err(_), None, _) | (Err(_), Some(_), None) => {}
        }
    });
}

/// Once, a file that begins as UTF-16 and has an odd number of bytes ended the process.
#[test]
fn bug_an_odd_number_of_utf_16_bytes_panicked() {
    for bytes in [b"\xff\xfeA" as &[u8], b"\xfe\xff\0", b"\xff\xfe", b"\xef\xbb\xbf\xff", b"\xff"] {
        assert!(read(bytes).is_err(), "{bytes:?}");
    }
}
