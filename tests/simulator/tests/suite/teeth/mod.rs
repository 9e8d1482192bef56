//! The committed table of planted bugs.

use std::path::PathBuf;

/// The table of planted bugs.
pub(crate) fn teeth() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/records/planted-bugs.md")
}
