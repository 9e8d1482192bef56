//! The scenarios of `docs/scenarios`, in the order in which the demonstration offers them.

use super::Scenario;
use super::field::FieldError;
use super::file::parse;

/// Name and text, as the files have them.
const FILES: [(&str, &str); 17] = [
    ("database.yaml", include_str!("../../../../docs/scenarios/database.yaml")),
    ("two-losses.yaml", include_str!("../../../../docs/scenarios/two-losses.yaml")),
    ("power-loss.yaml", include_str!("../../../../docs/scenarios/power-loss.yaml")),
    ("partition.yaml", include_str!("../../../../docs/scenarios/partition.yaml")),
    ("leader-killed.yaml", include_str!("../../../../docs/scenarios/leader-killed.yaml")),
    ("returns.yaml", include_str!("../../../../docs/scenarios/returns.yaml")),
    ("evicted-successor.yaml", include_str!("../../../../docs/scenarios/evicted-successor.yaml")),
    ("api-trouble.yaml", include_str!("../../../../docs/scenarios/api-trouble.yaml")),
    ("frozen.yaml", include_str!("../../../../docs/scenarios/frozen.yaml")),
    ("drain.yaml", include_str!("../../../../docs/scenarios/drain.yaml")),
    ("requested-drain.yaml", include_str!("../../../../docs/scenarios/requested-drain.yaml")),
    ("requested-lost-node.yaml", include_str!("../../../../docs/scenarios/requested-lost-node.yaml")),
    ("storm.yaml", include_str!("../../../../docs/scenarios/storm.yaml")),
    ("partition-zone.yaml", include_str!("../../../../docs/scenarios/partition-zone.yaml")),
    ("flapping.yaml", include_str!("../../../../docs/scenarios/flapping.yaml")),
    ("api-outage.yaml", include_str!("../../../../docs/scenarios/api-outage.yaml")),
    ("fence-lies.yaml", include_str!("../../../../docs/scenarios/fence-lies.yaml")),
];

/// All of them; the first is the default.
///
/// # Errors
/// A file that cannot be run: a mistake in this program, which its tests exclude.
pub fn shipped() -> Result<Vec<Scenario>, FieldError> {
    FILES.iter().map(|(file, text)| parse(file, text)).collect()
}
