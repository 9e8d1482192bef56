//! The shape of a request: the parts that determine which rule of the API applies, without the names. Every shape that
//! pod-safety sends must have been compared.

/// The shape of a request, such as `GET /api/v1/pods?limit`.
#[must_use]
pub fn shape(method: &str, path: &str, query: Option<&str>) -> String {
    let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
    let (prefix, mut rest) = match parts.as_slice() {
        ["api", version, rest @ ..] => (format!("/api/{version}"), rest),
        ["apis", group, version, rest @ ..] => (format!("/apis/{group}/{version}"), rest),
        _ => return format!("{method} {path}"),
    };
    let mut text = format!("{method} {prefix}");
    if let ["namespaces", _, tail @ ..] = rest
        && !tail.is_empty()
        && !matches!(tail.first(), Some(&"status" | &"finalize"))
    {
        text.push_str("/namespaces/*");
        rest = tail;
    }
    for (index, part) in rest.iter().enumerate() {
        text.push('/');
        text.push_str(if index == 1 { "*" } else { part });
    }
    // `limit=5000` and `limit=2` are one shape; an empty value is another.
    let mut keys: Vec<&str> = query
        .unwrap_or_default()
        .split('&')
        .filter_map(|pair| pair.split('=').next())
        .filter(|key| !key.is_empty())
        .collect();
    keys.sort_unstable();
    if !keys.is_empty() {
        text.push('?');
        text.push_str(&keys.join("&"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_values_are_no_part_of_a_shape() {
        let one = shape("GET", "/api/v1/namespaces/a/pods/p/status", Some("b=1&a=2"));
        assert_eq!(one, "GET /api/v1/namespaces/*/pods/*/status?a&b");
        assert_eq!(shape("GET", "/api/v1/namespaces/a", None), "GET /api/v1/namespaces/*");
        assert_eq!(shape("GET", "/api/v1/pods", Some("limit=5000")), "GET /api/v1/pods?limit");
        let lease = "/apis/coordination.k8s.io/v1/namespaces/n/leases/l";
        assert_eq!(shape("PATCH", lease, None), "PATCH /apis/coordination.k8s.io/v1/namespaces/*/leases/*");
    }
}
