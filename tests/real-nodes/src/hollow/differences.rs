//! The differences between the simulator's kubelet and a real one, and why each is harmless.

use std::collections::BTreeSet;

use super::SCRIPTS;
use super::record::{NODE, POD};

/// Script, the number of the step, the track.
pub(super) type Place = (&'static str, usize, &'static str);

/// Places with one reason.
const KNOWN: &[(&[Place], &str)] = &[
    (
        &[
            ("ends-by-grace", 0, POD),
            ("ends-by-itself", 0, POD),
            ("ignores-sigterm", 0, POD),
            ("force-deleted", 0, POD),
            ("deleted-while-cut-off", 0, POD),
            ("force-deleted-while-cut-off", 0, POD),
            ("kubelet-restarted", 0, POD),
            ("frozen", 0, POD),
            ("rebooted", 0, POD),
            ("node-deleted", 0, POD),
        ],
        "The simulator's kubelet says first that a container runs, and then that the pod is Ready, as a real one does for pods \
         with a readiness probe; without a probe a real one says both at once.",
    ),
    (
        &[("ignores-sigterm", 1, POD)],
        "Processes of the simulator end in time when they are asked, and well. How a container ended is read by nobody in \
         pod-safety: both phases are terminal, and both containers terminated.",
    ),
    (
        &[("rebooted", 1, POD), ("rebooted", 2, POD)],
        "The simulator's kubelet does not report what a boot ended, nor count restarts: its pod runs, and runs again.",
    ),
    (
        &[("node-deleted", 2, NODE)],
        "A real kubelet registers before it knows that its runtime is well, and is Ready a moment later.",
    ),
];

/// The differences that are not listed, and the listed ones that did not occur.
pub(super) fn unexpected(found: &BTreeSet<Place>) -> Vec<String> {
    let listed: BTreeSet<Place> = KNOWN.iter().flat_map(|(places, _)| *places).copied().collect();
    let describe = |(script, at, track): &Place, what: &str| {
        let deed = SCRIPTS.iter().find(|one| one.name == *script).and_then(|one| one.steps.get(*at));
        format!("{script}, after {deed:?} ({at}), {track}: {what}")
    };
    let new = found.difference(&listed).map(|place| describe(place, "differs, and nobody has said why"));
    let old = listed.difference(found).map(|place| describe(place, "was said to differ, and does not"));
    new.chain(old).collect()
}

#[cfg(test)]
mod tests {
    use super::super::record;
    use super::*;

    #[test]
    fn each_known_difference_names_an_existing_script() {
        for (places, reason) in KNOWN {
            assert!(reason.ends_with('.') && !places.is_empty(), "{reason}");
            for (script, at, track) in *places {
                let known = SCRIPTS.iter().find(|one| one.name == *script);
                assert!(known.is_some_and(|one| *at < one.steps.len()), "{script} {at}");
                assert!(record::TRACKS.contains(track), "{track}");
            }
        }
    }

    #[test]
    fn an_unlisted_difference_is_reported() {
        let place = (SCRIPTS[0].name, 0, record::PROCESS);
        let listed = BTreeSet::from_iter(KNOWN.iter().flat_map(|(places, _)| *places).copied());
        assert_eq!(unexpected(&listed), Vec::<String>::new());
        let places = unexpected(&listed.into_iter().chain([place]).collect());
        assert!(places.len() == 1 && places[0].contains("nobody has said why"), "{places:?}");
        assert!(unexpected(&BTreeSet::new()).iter().all(|line| line.contains("does not")));
    }
}
