//! Writes the record of a run, and updates the pages that quote it. Runs call it through tests/records/write.sh.
//!
//! - `record`: updates the pages only
//! - `record NAME KEY=VALUE…`: records a run that has just ended
//! - `record --old NAME KEY=VALUE…`: records an older run, whose files differ from the current ones

use anyhow::{Result, bail};
use pod_safety_locks::records::{write, write_pages};

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.as_slice() {
        [] => write_pages(),
        [old, name, pairs @ ..] if old == "--old" => write(name, pairs, true),
        [name, pairs @ ..] if !name.starts_with('-') => write(name, pairs, false),
        _ => bail!("usage: record [[--old] NAME KEY=VALUE…]"),
    }
}
