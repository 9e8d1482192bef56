//! Selects the proxy for the API server, by the rules of Go's `golang.org/x/net/http/httpproxy`, as in kubectl.

use std::net::IpAddr;

use http::Uri;
use ipnet::IpNet;
use percent_encoding::percent_decode_str;

/// The environment variables that name proxies. `ALL_PROXY` is not one of them: kubectl does not read it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Variables {
    https: String,
    http: String,
    no: String,
}

impl Variables {
    /// As in Go, the variable in capitals has precedence.
    pub(crate) fn read(variable: impl Fn(&str) -> Option<String>) -> Self {
        let first = |name: &str| {
            let names = [name.to_owned(), name.to_ascii_lowercase()];
            names.iter().find_map(|name| variable(name).filter(|value| !value.is_empty())).unwrap_or_default()
        };
        Self { https: first("HTTPS_PROXY"), http: first("HTTP_PROXY"), no: first("NO_PROXY") }
    }
}

/// The protocol of a proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProxyProtocol {
    /// HTTP, with or without TLS.
    Http,
    Socks5,
}

/// A proxy.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Proxy {
    pub(crate) protocol: ProxyProtocol,
    /// Scheme, host and port, without credentials.
    pub(crate) address: Uri,
    /// User and password.
    pub(crate) login: Option<(String, String)>,
    /// The setting that names the proxy.
    pub(crate) named_by: &'static str,
}

impl std::fmt::Debug for Proxy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{self}")
    }
}

impl std::fmt::Display for Proxy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} (from {})", self.address.to_string().trim_end_matches('/'), self.named_by)
    }
}

/// The proxy for `server`. That of the kubeconfig has precedence over the variables, whatever `NO_PROXY` contains.
///
/// # Errors
/// The value is no address of a proxy.
pub(crate) fn select(server: &Uri, named: Option<&str>, variables: &Variables) -> Result<Option<Proxy>, String> {
    if let Some(url) = named.filter(|url| !url.is_empty()) {
        let (scheme, rest) = url.split_once("://").unwrap_or(("", url));
        if !["http", "https", "socks5"].contains(&&*scheme.to_ascii_lowercase()) {
            return Err(format!("proxy-url {url:?} needs http://, https:// or socks5://"));
        }
        return parse(scheme, rest, "proxy-url").map(Some);
    }
    let (value, name) = match server.scheme_str() {
        Some("https") => (&variables.https, "HTTPS_PROXY"),
        _ => (&variables.http, "HTTP_PROXY"),
    };
    if value.is_empty() || !applies(server, &variables.no) {
        return Ok(None);
    }
    let (scheme, rest) = value.split_once("://").unwrap_or(("http", value));
    parse(scheme, rest, name).map(Some)
}

/// `rest` is the part after the scheme, which may have credentials and a path.
fn parse(scheme: &str, rest: &str, named_by: &'static str) -> Result<Proxy, String> {
    let scheme = scheme.to_ascii_lowercase();
    let (protocol, scheme, port) = match &*scheme {
        "http" => (ProxyProtocol::Http, "http", 80),
        "https" => (ProxyProtocol::Http, "https", 443),
        "socks5" | "socks5h" => (ProxyProtocol::Socks5, "socks5", 1080),
        _ => return Err(format!("{named_by} has the scheme {scheme}; give http, https or socks5")),
    };
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let (login, place) = match authority.rsplit_once('@') {
        Some((login, place)) => (Some(login), place),
        None => (None, authority),
    };
    let address: Result<Uri, _> = format!("{scheme}://{place}").parse();
    let address = address.ok().filter(|address| address.host().is_some_and(|host| !host.is_empty()));
    let address = address.filter(|_| has_port_or_none(place));
    let Some(address) = address else {
        return Err(format!("{named_by} is no address of a proxy; give one such as {scheme}://proxy:{port}"));
    };
    let address = match address.port_u16() {
        Some(_) => address,
        None => with_port(&address, scheme, port).ok_or_else(|| format!("{named_by} is no address"))?,
    };
    let decoded = |text: &str| percent_decode_str(text).decode_utf8_lossy().into_owned();
    let login = login.map(|login| login.split_once(':').unwrap_or((login, "")));
    let login = login.map(|(user, password)| (decoded(user), decoded(password)));
    Ok(Proxy { protocol, address, login, named_by })
}

/// Whether the part after the host is a port, or nothing.
pub(crate) fn has_port_or_none(authority: &str) -> bool {
    let behind = authority.rsplit_once(']').map_or(authority, |(_, behind)| behind);
    behind.split_once(':').is_none_or(|(_, port)| port.parse::<u16>().is_ok())
}

fn with_port(address: &Uri, scheme: &str, port: u16) -> Option<Uri> {
    format!("{scheme}://{}:{port}", address.host()?).parse().ok()
}

/// Whether the proxy of the variables applies to `server`: not to addresses of this host, and not to entries of `NO_PROXY`.
fn applies(server: &Uri, no_proxy: &str) -> bool {
    let host = server.host().unwrap_or_default().to_ascii_lowercase();
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let port = server.port_u16().unwrap_or(if server.scheme_str() == Some("https") { 443 } else { 80 });
    let address = host.parse::<IpAddr>().ok().map(|address| address.to_canonical());
    if host == "localhost" || address.is_some_and(|address| address.is_loopback()) {
        return false;
    }
    !no_proxy.split(',').any(|entry| is_excluded(&entry.trim().to_ascii_lowercase(), host, address, port))
}

/// Whether an entry of `NO_PROXY` matches this host: `*`, a network, an address or a domain; the latter two with or without
/// a port.
fn is_excluded(entry: &str, host: &str, address: Option<IpAddr>, port: u16) -> bool {
    if entry == "*" {
        return true;
    }
    if let Ok(network) = entry.parse::<IpNet>() {
        return address.is_some_and(|address| network.contains(&address));
    }
    let (name, of_port) = split_port(entry).unwrap_or((entry, ""));
    if !of_port.is_empty() && of_port != port.to_string() {
        return false;
    }
    if let Ok(one) = name.parse::<IpAddr>() {
        return address == Some(one.to_canonical());
    }
    let name = if name.starts_with("*.") { &name[1..] } else { name };
    if name.is_empty() || address.is_some() {
        return false;
    }
    match name.strip_prefix('.') {
        // `.example.org` matches only its subdomains.
        Some(_) => host.ends_with(name),
        None => host == name || host.strip_suffix(name).is_some_and(|below| below.ends_with('.')),
    }
}

/// Splits `host:port` and `[address]:port`, as Go's `SplitHostPort` does.
fn split_port(entry: &str) -> Option<(&str, &str)> {
    let (host, port) = match entry.strip_prefix('[') {
        Some(rest) => rest.split_once("]:")?,
        None => entry.rsplit_once(':').filter(|(host, _)| !host.contains(':'))?,
    };
    (!port.contains([':', '[', ']'])).then_some((host, port))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn variables(pairs: &[(&str, &str)]) -> Variables {
        Variables::read(|name| pairs.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned()))
    }

    fn describe_selection(server: &str, named: Option<&str>, pairs: &[(&str, &str)]) -> String {
        match select(&server.parse().unwrap(), named, &variables(pairs)) {
            Ok(Some(proxy)) => proxy.to_string(),
            Ok(None) => "direct".to_owned(),
            Err(why) => why,
        }
    }

    /// Once, no command started where `HTTPS_PROXY` was set: `requires the disabled feature "kube/http-proxy"`.
    #[test]
    fn bug_no_request_was_sent_where_a_proxy_variable_was_set() {
        const THROUGH: &str = "http://proxy:3128 (from HTTPS_PROXY)";
        // The rows of Go's own TestUseProxy that need no name server, and further rows.
        for (no_proxy, server, through) in [
            ("", "https://example.com:6443", true),
            ("", "https://localhost:6443", false),
            ("", "https://127.0.0.1:6443", false),
            ("", "https://127.8.9.1", false),
            ("", "https://[::1]:6443", false),
            ("", "https://[::ffff:127.0.0.1]:6443", false),
            ("", "https://10.0.0.1:6443", true),
            ("*", "https://example.com", false),
            ("a, * ,b", "https://10.0.0.1", false),
            ("example.com", "https://example.com:6443", false),
            ("EXAMPLE.com", "https://api.Example.com", false),
            ("example.com", "https://notexample.com", true),
            (".example.com", "https://example.com", true),
            (".example.com", "https://api.example.com", false),
            ("*.example.com", "https://api.example.com", false),
            ("*.example.com", "https://example.com", true),
            ("example.com:6443", "https://example.com:6443", false),
            ("example.com:443", "https://example.com", false),
            ("example.com:443", "https://example.com:6443", true),
            ("10.0.0.0/8", "https://10.1.2.3:6443", false),
            ("10.0.0.7/8", "https://10.1.2.3:6443", false),
            ("10.0.0.0/8", "https://11.1.2.3:6443", true),
            ("fd00::/8", "https://[fd00::1]:6443", false),
            ("10.1.2.3", "https://10.1.2.3:6443", false),
            ("10.1.2.3:443", "https://10.1.2.3:6443", true),
            ("[fd00::1]:6443", "https://[fd00::1]:6443", false),
            ("fd00::1", "https://[fd00::1]:6443", false),
            ("2.3", "https://10.1.2.3", true),
            (",,", "https://example.com", true),
            (":6443", "https://example.com:6443", true),
            // The proxy's own name does not matter.
            ("proxy", "https://example.com", true),
        ] {
            let seen =
                describe_selection(server, None, &[("HTTPS_PROXY", "http://proxy:3128"), ("NO_PROXY", no_proxy)]);
            assert_eq!(seen, if through { THROUGH } else { "direct" }, "{no_proxy} {server}");
        }
    }

    #[test]
    fn proxy_variables_are_selected_as_by_kubectl() {
        let tls = "https://example.com";
        for (server, pairs, says) in [
            (tls, &[("https_proxy", "p:1")] as &[_], "http://p:1 (from HTTPS_PROXY)"),
            (tls, &[("HTTPS_PROXY", "p:1"), ("https_proxy", "q:1")], "http://p:1 (from HTTPS_PROXY)"),
            (tls, &[("HTTPS_PROXY", ""), ("https_proxy", "q:1")], "http://q:1 (from HTTPS_PROXY)"),
            (tls, &[("HTTP_PROXY", "p:1")], "direct"),
            (tls, &[("ALL_PROXY", "p:1"), ("all_proxy", "p:1")], "direct"),
            (tls, &[("https_proxy", "p:1"), ("no_proxy", "example.com")], "direct"),
            (tls, &[("HTTPS_PROXY", "socks5h://p")], "socks5://p:1080 (from HTTPS_PROXY)"),
            (tls, &[("HTTPS_PROXY", "ftp://p")], "HTTPS_PROXY has the scheme ftp; give http, https or socks5"),
            (
                tls,
                &[("HTTPS_PROXY", "http://:3")],
                "HTTPS_PROXY is no address of a proxy; give one such as http://proxy:80",
            ),
            ("http://example.com", &[("HTTPS_PROXY", "p:1")], "direct"),
            ("http://example.com", &[("HTTP_PROXY", "p:1")], "http://p:1 (from HTTP_PROXY)"),
        ] {
            assert_eq!(describe_selection(server, None, pairs), says, "{pairs:?}");
        }
    }

    #[test]
    fn proxy_url_has_precedence_over_the_variables() {
        let there = [("HTTPS_PROXY", "http://other:1"), ("NO_PROXY", "*")];
        for (named, says) in [
            ("http://p:3128/", "http://p:3128 (from proxy-url)"),
            ("HTTPS://p", "https://p:443 (from proxy-url)"),
            ("socks5://[fd00::1]:9", "socks5://[fd00::1]:9 (from proxy-url)"),
            ("p:3128", "proxy-url \"p:3128\" needs http://, https:// or socks5://"),
            ("http://p:99999", "proxy-url is no address of a proxy; give one such as http://proxy:80"),
            ("", "direct"),
        ] {
            assert_eq!(describe_selection("https://127.0.0.1:6443", Some(named), &there), says, "{named}");
        }
        let url = "http://a%40b:p%3As@s@p:1";
        let proxy = select(&"https://a".parse().unwrap(), Some(url), &Variables::default()).unwrap().unwrap();
        assert_eq!(proxy.login, Some(("a@b".to_owned(), "p:s@s".to_owned())));
        assert_eq!(format!("{proxy:?}"), "http://p:1 (from proxy-url)", "a login is told nobody");
    }
}
