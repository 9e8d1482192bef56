//! The targets of links and redirections: only resources of the same service.

use http::Uri;
use http::uri::Authority;

/// The prefix of all resources of a service.
const SERVICE: &str = "/redfish/";

const HTTPS: u16 = 443;

/// The path to which `location` points from `here`, if it belongs to the service at `authority`.
pub(super) fn same_service_path(location: &str, here: &str, authority: &Authority) -> Option<String> {
    let path = service_path(location, here)?;
    if !is_absolute(location) {
        return Some(path);
    }
    let uri: Uri = location.parse().ok()?;
    let same = uri.scheme_str() == Some("https")
        && uri.host().is_some_and(|host| host.eq_ignore_ascii_case(authority.host()))
        && uri.port_u16().unwrap_or(HTTPS) == authority.port_u16().unwrap_or(HTTPS);
    same.then_some(path)
}

/// The path of `location` below [`SERVICE`], at any authority: a service may use any name for itself.
pub(super) fn service_path(location: &str, here: &str) -> Option<String> {
    let location = location.trim();
    if location.is_empty() {
        return None;
    }
    let path = if is_absolute(location) {
        location.parse::<Uri>().ok()?.path().to_owned()
    } else if location.starts_with('/') {
        path_of(location).to_owned()
    } else {
        let (folder, _) = here.rsplit_once('/')?;
        format!("{folder}/{}", path_of(location))
    };
    let is_plain = path.parse::<Uri>().is_ok_and(|uri| uri.path() == path) && !path.contains("..");
    (is_plain && path.starts_with(SERVICE)).then_some(path)
}

fn is_absolute(location: &str) -> bool {
    location.contains("://") || location.starts_with("//")
}

fn path_of(location: &str) -> &str {
    location.split(['?', '#']).next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: &str = "/redfish/v1/SessionService/Sessions";

    #[test]
    fn a_location_is_followed_to_the_same_authority_alone() {
        let authority: Authority = "bmc.example".parse().unwrap();
        let session = Some("/redfish/v1/SessionService/Sessions/7");
        for (location, followed_to, own) in [
            ("/redfish/v1/SessionService/Sessions/7", session, session),
            ("https://bmc.example/redfish/v1/SessionService/Sessions/7", session, session),
            ("https://BMC.example:443/redfish/v1/SessionService/Sessions/7", session, session),
            ("Sessions/7", session, session),
            ("/redfish/v1/SessionService/Sessions/7?a=b", session, session),
            ("https://bmc.example:8443/redfish/v1/SessionService/Sessions/7", None, session),
            ("http://bmc.example/redfish/v1/SessionService/Sessions/7", None, session),
            ("https://192.0.2.1/redfish/v1/SessionService/Sessions/7", None, session),
            ("//evil.example/redfish/v1/SessionService/Sessions/7", None, None),
            ("https://bmc.example/api/login", None, None),
            ("/redfish/v1/../../etc", None, None),
            ("https://bmc.example", None, None),
            ("", None, None),
            ("http://[", None, None),
        ] {
            assert_eq!(same_service_path(location, HERE, &authority).as_deref(), followed_to, "{location}");
            assert_eq!(service_path(location, HERE).as_deref(), own, "{location}");
        }
    }
}
