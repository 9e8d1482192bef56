//! How many requests the API server answered, from its own `apiserver_request_total`.

use std::collections::BTreeMap;

/// Requests by verb and resource, for example `PATCH pods/status`.
pub(crate) type Requests = BTreeMap<String, u64>;

/// Reads the counters. Watches are excluded (they count when they end), and so are requests without a resource, such as this page.
pub(crate) fn parse_counters(metrics: &str) -> Requests {
    let mut requests = Requests::new();
    for line in metrics.lines() {
        let Some((labels, count)) =
            line.strip_prefix("apiserver_request_total{").and_then(|rest| rest.rsplit_once("} "))
        else {
            continue;
        };
        let (verb, resource) = (label(labels, "verb"), label(labels, "resource"));
        if resource.is_empty() || matches!(verb, "WATCH" | "CONNECT") {
            continue;
        }
        let name = match label(labels, "subresource") {
            "" => format!("{verb} {resource}"),
            subresource => format!("{verb} {resource}/{subresource}"),
        };
        *requests.entry(name).or_default() += whole(count);
    }
    requests
}

pub(crate) fn between(before: &Requests, after: &Requests) -> Requests {
    let added = after
        .iter()
        .map(|(name, count)| (name.clone(), count.saturating_sub(before.get(name).copied().unwrap_or_default())));
    added.filter(|(_, count)| *count > 0).collect()
}

fn label<'a>(labels: &'a str, name: &str) -> &'a str {
    let mut parts = labels.split(',');
    let value = parts.find_map(|part| part.strip_prefix(name)?.strip_prefix("=\""));
    value.map_or("", |value| value.trim_end_matches('"'))
}

/// A counter; the server formats large ones as `1.25e+06`.
fn whole(count: &str) -> u64 {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a count of requests, which `as` rounds down and keeps at zero or above"
    )]
    count.trim().parse::<f64>().map_or(0, |count| count as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEFORE: &str = r#"
# TYPE apiserver_request_total counter
apiserver_request_total{code="200",component="apiserver",dry_run="",group="",resource="pods",scope="resource",subresource="status",verb="PATCH",version="v1"} 7
apiserver_request_total{code="409",component="apiserver",dry_run="",group="",resource="pods",scope="resource",subresource="status",verb="PATCH",version="v1"} 1
apiserver_request_total{code="0",component="apiserver",dry_run="",group="",resource="pods",scope="cluster",subresource="",verb="WATCH",version="v1"} 3
apiserver_request_total{code="200",component="apiserver",dry_run="",group="",resource="",scope="",subresource="/metrics",verb="GET",version=""} 3
apiserver_request_sli_duration_seconds_count{resource="pods",verb="PATCH"} 9
"#;

    #[test]
    fn answers_of_all_codes_count_and_watches_do_not() {
        assert_eq!(parse_counters(BEFORE), Requests::from([("PATCH pods/status".to_owned(), 8)]));
    }

    #[test]
    fn earlier_requests_are_not_counted() {
        let after = parse_counters(&format!(
            "{BEFORE}apiserver_request_total{{code=\"200\",resource=\"pods\",subresource=\"\",verb=\"DELETE\"}} 1.25e+06\n"
        ));
        let added = between(&parse_counters(BEFORE), &after);
        assert_eq!(added, Requests::from([("DELETE pods".to_owned(), 1_250_000)]));
    }
}
