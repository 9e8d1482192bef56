//! Which watches are opened after a sequence: from every version that it saw, with
//! the parameters in turn.

use super::own::Own;
use super::templates::Target;

/// The watches for a sequence that saw these versions: path and parameters, and
/// the version.
#[must_use]
pub fn watch_targets(sequence: &str, versions: &[u64]) -> Vec<(String, String)> {
    let mut targets = Vec::new();
    let (a, b) = (format!("{sequence}-a"), format!("{sequence}-b"));
    let pods = Target::Pod.collection(&a);
    for (rank, version) in versions.iter().enumerate() {
        let version = version.to_string();
        let parameters = match rank % 5 {
            0 => String::new(),
            1 => "labelSelector=app%3Dx".to_owned(),
            2 => format!("fieldSelector=spec.nodeName%3D{sequence}-a"),
            3 => "allowWatchBookmarks=true".to_owned(),
            _ => format!("fieldSelector=metadata.name%3D{sequence}-a&labelSelector=app!%3Dx"),
        };
        targets.push((format!("{pods}?{parameters}"), version));
    }
    let others = [
        Target::Node,
        Target::Lease,
        Target::Budget,
        Target::Volume,
        Target::Claim,
        Target::Attachment,
        Target::StatefulSet,
        Target::ReplicaSet,
        Target::Deployment,
        Target::Replication,
        Target::Event,
    ];
    let own_kinds = Own::ALL.map(Target::Ours);
    for (turn, target) in others.into_iter().chain(own_kinds).enumerate() {
        let path = target.collection(&a);
        let selector = if target.namespaced() { String::new() } else { format!("labelSelector=seq%3D{sequence}") };
        for place in [0, versions.len() / 2] {
            if let Some(version) = versions.get(place) {
                targets.push((format!("{path}?{selector}"), version.to_string()));
            }
        }
        if turn % 3 == 0 {
            targets.push((format!("{path}?{selector}"), String::new()));
        }
    }
    if let Some(first) = versions.first() {
        // As pod-safety's feeds watch.
        let own_kinds = [Own::Device, Own::Remediation].map(|own| Target::Ours(own).collection(&a));
        let all = ["/api/v1/pods".to_owned(), "/api/v1/nodes".to_owned(), Target::Lease.collection(&a)];
        for path in all.into_iter().chain(own_kinds).chain(Target::FOLLOWED.map(Target::everywhere)) {
            targets.push((format!("{path}?allowWatchBookmarks=true"), first.to_string()));
        }
    }
    let initial = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
    targets.push((format!("{pods}?{initial}"), String::new()));
    targets.push((format!("{pods}?{initial}&labelSelector=app%3Dx"), "0".to_owned()));
    targets.push((format!("{pods}?"), String::new()));
    targets.push((format!("{}?", Target::Pod.collection(&b)), "0".to_owned()));
    targets.push((format!("{pods}?sendInitialEvents=true"), String::new()));
    targets.push((format!("{pods}?resourceVersionMatch=NotOlderThan"), String::new()));
    targets
}
