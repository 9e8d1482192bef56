//! `make lint` checks the messages of new commits with `commits.sh`.

use std::path::Path;
use std::process::{Command, Output};

use anyhow::{Result, ensure};

fn git(folder: &Path, args: &[&str]) -> Result<String> {
    let identity = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false"];
    let output = Command::new("git").arg("-C").arg(folder).args(identity).args(args).output()?;
    ensure!(output.status.success(), "{output:?}");
    Ok(String::from_utf8(output.stdout)?.trim().to_owned())
}

fn check_commits(folder: &Path, first: &str) -> Result<Output> {
    let script = pod_safety_locks::repository().join("tests/locks/commits.sh");
    Ok(Command::new(script).arg(first).current_dir(folder).output()?)
}

#[test]
fn messages_of_new_commits_are_checked() -> Result<()> {
    let body = "Cause. Effect. Test.";
    let long = format!("area: add {}", "x".repeat(63));
    let table = [
        ("area: add a thing", body, None),
        ("area, docs: add a thing", body, None),
        ("Add a thing", body, Some("not of the form")),
        ("area: things that are added", body, Some("none of the verbs")),
        ("area: added a thing", body, Some("none of the verbs")),
        (&long, body, Some("more than 72")),
        ("area: add a thing", "", Some("no body")),
    ];
    for (subject, body, wrong) in table {
        let folder = tempfile::tempdir()?;
        let repository = folder.path();
        git(repository, &["init", "--quiet"])?;
        git(repository, &["commit", "--quiet", "--allow-empty", "-m", "Before"])?;
        let first = git(repository, &["rev-parse", "HEAD"])?;
        ensure!(check_commits(repository, &first)?.status.success(), "nothing is new");
        git(repository, &["commit", "--quiet", "--allow-empty", "-m", subject, "-m", body])?;
        let output = check_commits(repository, &first)?;
        let stderr = String::from_utf8(output.stderr)?;
        ensure!(output.status.success() == wrong.is_none(), "{subject}: {stderr}");
        ensure!(wrong.is_none_or(|wrong| stderr.contains(wrong)), "{subject}: {stderr}");
        ensure!(check_commits(repository, "0000000")?.status.success(), "a clone without history");
    }
    Ok(())
}
