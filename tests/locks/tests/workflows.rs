//! Checks the workflow steps: `make workflows` runs them, except for a short list.

use anyhow::{Result, ensure};
use pod_safety_locks::workflows::{NOT_HERE, jobs};

#[test]
fn each_unlisted_workflow_step_runs_in_a_shell() -> Result<()> {
    let steps: Vec<_> = jobs()?.into_iter().flat_map(|job| job.steps).collect();
    ensure!(steps.len() > 10, "{} steps", steps.len());
    for (part, _) in NOT_HERE {
        let with = steps.iter().filter(|step| step.run.contains(part)).count();
        ensure!(with > 0, "no step has {part}: take it from the list");
    }
    let here = steps.iter().filter(|step| step.needs().is_none()).count();
    ensure!(here > steps.len() / 2, "{here} of {} steps can be run", steps.len());
    Ok(())
}

/// Steps that take less than a minute run here: a broken line is found before a release is tagged.
#[test]
fn the_short_steps_of_a_release_succeed() -> Result<()> {
    let steps = jobs()?.into_iter().flat_map(|job| job.steps);
    let short: Vec<_> = steps.filter(|step| SHORT.iter().any(|part| step.run.contains(part))).collect();
    ensure!(short.len() == SHORT.len(), "{short:?}");
    let folder = tempfile::tempdir()?;
    for step in short {
        let output =
            pod_safety_locks::workflows::shell(&step, &pod_safety_locks::repository(), folder.path())?.output()?;
        ensure!(output.status.success(), "{}: {}\n{output:?}", step.place, step.run);
    }
    Ok(())
}

const SHORT: [&str; 2] = ["Cargo.toml | head -1)\" = \"$GITHUB_REF_NAME\"", "is approved"];
