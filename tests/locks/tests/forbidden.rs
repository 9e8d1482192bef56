//! Code that must not compile: forging evidence, using it twice, a force delete without it.
//!
//! One file per attempt, `tests/locks/tests/forbidden/<what_it_tries>.rs`, with a `main` and, beside it, the
//! compiler's refusal as `<what_it_tries>.stderr`. The refusal belongs to the proof: a file may fail to
//! compile for a reason of no interest (a typing error, a module that has moved), and then its stderr says
//! so. Write the file, run
//!
//!     TRYBUILD=overwrite cargo test -p pod-safety-locks --test forbidden
//!
//! and read the new stderr before it is committed: it must name the lock that holds. Files may use
//! pod-safety-shared and pod-safety-proof, dev-dependencies of this crate.

use anyhow::{Result, ensure};

/// One for each way around the deletion authority that was thought of; none may be lost.
const LEAST: usize = 10;

#[test]
fn forbidden_code_does_not_compile() -> Result<()> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/forbidden");
    let files: Vec<_> = std::fs::read_dir(folder)?.collect::<Result<_, _>>()?;
    let attempts = files.iter().filter(|file| file.path().extension().is_some_and(|end| end == "rs"));
    // Without its stderr, trybuild would only propose one and the attempt could fail for any reason.
    let writes = std::env::var_os("TRYBUILD").is_some();
    ensure!(
        !writes || std::env::var_os("CI").is_none(),
        "TRYBUILD is set, and so is CI: it would write what it is to check"
    );
    for attempt in attempts.clone() {
        let refusal = attempt.path().with_extension("stderr");
        ensure!(refusal.exists() || writes, "{} is missing", refusal.display());
    }
    ensure!(attempts.count() >= LEAST, "attempts are missing from {folder}");
    trybuild::TestCases::new().compile_fail("tests/forbidden/*.rs");
    Ok(())
}
