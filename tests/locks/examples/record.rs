//! Writes the record of a run, and what the pages say of it. tests/records/write.sh is how runs call it.
//!
//! - `record`: the pages only
//! - `record NAME KEY=VALUE…`: of a run that has just ended
//! - `record --old NAME KEY=VALUE…`: of one whose files are not those of today

use anyhow::{Result, bail};
use pod_safety_locks::records::{write, write_pages};

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.as_slice() {
        [] => write_pages(),
        [old, name, told @ ..] if old == "--old" => write(name, told, true),
        [name, told @ ..] if !name.starts_with('-') => write(name, told, false),
        _ => bail!("usage: record [[--old] NAME KEY=VALUE…]"),
    }
}
