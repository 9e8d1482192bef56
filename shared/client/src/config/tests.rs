//! Where a configuration is searched for, and how its address is parsed.

use super::*;

/// Once, in a runner's pod, `fence` used the runner's own cluster, whatever `$KUBECONFIG` named.
#[test]
fn bug_the_service_account_had_precedence_over_a_kubeconfig_for_commands() {
    for (prefer, in_pod, has_kubeconfig, takes) in [
        (Prefer::Kubeconfig, true, true, false),
        (Prefer::Kubeconfig, true, false, true),
        (Prefer::Kubeconfig, false, false, false),
        (Prefer::ServiceAccount, true, true, true),
        (Prefer::ServiceAccount, false, true, false),
    ] {
        let found = takes_service_account(prefer, in_pod, has_kubeconfig);
        assert_eq!(found, takes, "{prefer:?} {in_pod} {has_kubeconfig}");
    }
}

#[test]
fn kubeconfig_is_detected_as_by_kubectl() {
    let home = tempfile::tempdir().unwrap();
    let has = |named: Option<&str>| has_kubeconfig(named.map(OsStr::new), Some(home.path()));
    for (named, has_one) in [(None, false), (Some(""), false), (Some(":"), false), (Some(":/a"), true)] {
        assert_eq!(has(named), has_one, "{named:?}");
    }
    std::fs::create_dir(home.path().join(".kube")).unwrap();
    std::fs::write(home.path().join(".kube/config"), "").unwrap();
    assert!(has(None) && has(Some("")));
    assert!(!has_kubeconfig(None, None));
    for (named, shown) in [(None, "~/.kube/config"), (Some(""), "~/.kube/config"), (Some("/a:/b"), "/a:/b")] {
        assert_eq!(searched_paths(named.map(OsStr::new)), shown);
    }
}

#[test]
fn the_address_of_an_api_server_has_a_scheme_and_a_host() {
    assert_eq!(parse_master("https://10.0.0.1:6443").unwrap().to_string(), "https://10.0.0.1:6443/");
    for text in ["", "10.0.0.1:6443", "ftp://10.0.0.1", "/api", "https:///api"] {
        let error = parse_master(text).unwrap_err();
        assert!(error.to_string().contains(&format!("{text:?} for '--master <URL>'")), "{error}");
    }
}

#[test]
fn each_file_of_a_kubeconfig_list_is_read_once_and_empty_names_are_skipped() {
    let home = Some(Path::new("/home/a"));
    for (named, read) in [
        (None, &["/home/a/.kube/config"] as &[_]),
        (Some(""), &["/home/a/.kube/config"]),
        (Some(":"), &[]),
        (Some("/b::/a:/b"), &["/b", "/a"]),
    ] {
        let read: Vec<_> = read.iter().map(PathBuf::from).collect();
        assert_eq!(paths(named.map(OsStr::new), home), read, "{named:?}");
    }
}

#[test]
fn addresses_are_parsed_as_by_client_go() {
    for (text, read) in [
        ("https://10.0.0.1:6443", "https://10.0.0.1:6443/"),
        ("HTTPS://a/", "https://a/"),
        ("https://a/k8s/c-1/?x=1#f", "https://a/k8s/c-1/"),
        ("10.0.0.1:6443", "http://10.0.0.1:6443/"),
        ("localhost:8080/", "http://localhost:8080/"),
        ("a", "http://a/"),
        ("https://[::1]:6443", "https://[::1]:6443/"),
    ] {
        assert_eq!(parse_server(text).unwrap().to_string(), read, "{text}");
    }
    let long = format!("https://a/{}", "a".repeat(70_000));
    for text in [
        "",
        ":6443",
        "https://",
        "https://:6443",
        "a/b",
        "ftp://a",
        "https://a b",
        "https://a:b",
        "https://u:p@a",
        "https://a:99999",
        "https://a\n",
        &long,
    ] {
        assert!(parse_server(text).is_err(), "{text}");
    }
}

#[test]
fn impersonation_headers_are_those_of_kubectl() {
    let extra = vec![("example.org/a%b".to_owned(), "v".to_owned())];
    let act_as = ActAs { user: "jörg".to_owned(), uid: Some("1".to_owned()), groups: vec!["g".to_owned()], extra };
    let headers: Vec<_> = headers(&act_as).unwrap().into_iter().map(|(name, _)| name.to_string()).collect();
    assert_eq!(
        headers,
        [
            "user-agent",
            "impersonate-user",
            "impersonate-uid",
            "impersonate-group",
            "impersonate-extra-example.org%2fa%25b"
        ]
    );
    let broken = ActAs { user: "a\nb".to_owned(), ..ActAs::default() };
    assert!(super::headers(&broken).unwrap_err().contains("cannot be impersonated"));
    assert_eq!(super::headers(&ActAs::default()).unwrap().len(), 1);
}
