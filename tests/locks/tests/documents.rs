//! What people copy from the documentation is run by a test: each block and each command has one.

use std::process::Command as Process;

use anyhow::{Context, Result, ensure};
use pod_safety_locks::documents::{
    Block, Way, blocks, blocks_of, commands, commands_of, idle_exceptions, split, with_stand_ins, words,
};
use pod_safety_locks::{manifest, members, repository};

#[test]
fn every_block_has_a_language_and_every_command_a_test() -> Result<()> {
    let (blocks, commands) = (blocks()?, commands()?);
    ensure!(blocks.len() > 60 && commands.len() > 100, "{} and {}", blocks.len(), commands.len());
    let idle = idle_exceptions(&commands);
    ensure!(idle.is_empty(), "no command begins so any more, take it from NOT_HERE: {idle:?}");
    for way in [Way::Demo, Way::ControlPlane, Way::Build, Way::Flags] {
        ensure!(commands.iter().any(|command| command.way == way), "no command is {way:?}");
    }
    Ok(())
}

#[test]
fn what_is_built_is_there() -> Result<()> {
    for command in commands()?.iter().filter(|command| command.way == Way::Build) {
        let words: Vec<&str> = command.text.split_whitespace().collect();
        let done = match words.as_slice() {
            ["make", targets @ ..] => can_be_made(targets),
            ["cargo", arguments @ ..] => can_be_run(arguments),
            _ => continue,
        };
        done.with_context(|| format!("{}: {}", command.place, command.text))?;
    }
    Ok(())
}

#[test]
fn what_is_not_there_is_noticed() {
    assert!(can_be_made(&["help"]).is_ok() && can_be_made(&["no-such-target"]).is_err());
    assert!(can_be_run(&["run", "-p", "pod-safety-bench"]).is_ok());
    assert!(can_be_run(&["run", "-p", "pod-safety-nothing"]).is_err());
    assert!(can_be_run(&["frobnicate"]).is_err());
}

fn can_be_made(targets: &[&str]) -> Result<()> {
    let output = Process::new("make")
        .arg("-n")
        .args(targets)
        .env_remove("MAKEFLAGS")
        .current_dir(repository())
        .output()?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}

/// Whether cargo knows the subcommand, and the workspace the package and its program.
fn can_be_run(arguments: &[&str]) -> Result<()> {
    let own: Vec<&str> = arguments.iter().copied().take_while(|argument| *argument != "--").collect();
    let subcommand = own.first().copied().unwrap_or_default();
    ensure!(["bench", "build", "clippy", "run", "test"].contains(&subcommand), "cargo {subcommand}");
    let behind = |flag: &str| own.iter().skip_while(move |one| **one != flag).nth(1).copied();
    if let Some(package) = behind("-p").or_else(|| behind("--package")) {
        let names: Result<Vec<String>> = members()?.iter().map(|member| name_of(member)).collect();
        ensure!(names?.iter().any(|name| name == package), "there is no package {package}");
    }
    Ok(())
}

fn name_of(member: &str) -> Result<String> {
    let manifest = manifest(format!("{member}/Cargo.toml"))?;
    Ok(manifest["package"]["name"].as_str().context("name")?.to_owned())
}

#[test]
fn a_block_that_no_test_knows_is_refused_with_its_place() -> Result<()> {
    let refused = |page: &str| blocks_of("docs/x.md", page).unwrap_err().to_string();
    assert!(refused("One.\n\n```\nls\n```\n").starts_with("docs/x.md:3: the language of this block is \"\""));
    assert!(refused("```fish\nls\n```\n").starts_with("docs/x.md:1: the language of this block is \"fish\""));
    assert!(refused("```text\nls\n").contains("docs/x.md:1: this block has no end"));
    let refused = |text: &str| format!("{:#}", commands_of(&shell(text)).unwrap_err());
    let said = refused("kubectl get pods\nfrobnicate --now\n");
    assert!(
        said.starts_with("docs/x.md:7: frobnicate --now: write it as") && said.contains("NOT_HERE"),
        "{said}"
    );
    assert!(refused("pod-safety status | kubectl apply -f -\n").contains("no test runs both"));
    assert!(refused("grep x y\n").contains("no command but filters"));
    let block = blocks_of("docs/x.md", "<!-- a note -->\n  ```yaml\n  a: 1\n  ```\n")?;
    assert_eq!((block[0].before.as_str(), block[0].text.as_str()), ("<!-- a note -->", "  a: 1\n"));
    Ok(())
}

fn shell(text: &str) -> Block {
    let (file, language) = ("docs/x.md".to_owned(), "console".to_owned());
    Block { file, line: 5, language, before: String::new(), text: text.to_owned() }
}

#[test]
fn commands_are_read_as_a_shell_does() -> Result<()> {
    let found = |text: &str| -> Result<Vec<(String, Way)>> {
        Ok(commands_of(&shell(text))?.into_iter().map(|command| (command.text, command.way)).collect())
    };
    let one = |text: &str, way| vec![(text.to_owned(), way)];
    assert_eq!(found("pod-safety status   # the leader | and nodes\n")?, one("pod-safety status", Way::Demo));
    assert_eq!(
        found("kubectl pod-safety drain a \\\n  --apply\n")?,
        one("kubectl pod-safety drain a --apply", Way::Demo)
    );
    assert_eq!(found("# a remark\n\n$ make try\nit says && this\n")?, one("make try", Way::Build));
    assert_eq!(found("pod-safety demo --plain | less\n")?, one("pod-safety demo --plain | less", Way::Flags));
    let piped = "pod-safety manifests | kubectl apply -f -";
    assert_eq!(found(piped)?, one(piped, Way::ControlPlane));
    let two = found("make image && kubectl get pods -o 'a && b'\n")?;
    assert_eq!(two[1], ("kubectl get pods -o 'a && b'".to_owned(), Way::ControlPlane));
    assert!(matches!(found("kind load docker-image x\n")?[0].1, Way::NotHere(_)));
    assert_eq!(
        words("fence a --reason \"it's  off\" x='y z' ''"),
        ["fence", "a", "--reason", "it's  off", "x=y z", ""]
    );
    assert_eq!(split("a | b '|' \"#\" c#d # e", &["|"]), ["a", "b '|' \"#\" c#d"]);
    Ok(())
}

#[test]
fn names_stand_in_for_whole_words() {
    let names = [("NODE", "node-0"), ("api", "shop-0")];
    assert_eq!(
        with_stand_ins("explain node NODE -n api 'spec.nodeName=NODE' pod/NODE api-1 NODES", &names),
        "explain node node-0 -n shop-0 'spec.nodeName=node-0' pod/node-0 api-1 NODES"
    );
}
