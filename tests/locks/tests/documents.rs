//! Each block and each command of the documentation has a test that runs it.

use std::process::Command as Process;

use anyhow::{Context, Result, ensure};
use pod_safety_locks::documents::{
    Block, NOT_HERE, TestedBy, blocks, blocks_of, commands, commands_of, idle_exceptions, split, split_words,
    with_stand_ins,
};
use pod_safety_locks::{repository, texts};
use serde_json::Value;

#[test]
fn every_block_has_a_language_and_every_command_a_test() -> Result<()> {
    let (blocks, commands) = (blocks()?, commands()?);
    ensure!(blocks.len() > 60 && commands.len() > 100, "{} and {}", blocks.len(), commands.len());
    let idle = idle_exceptions(&commands);
    ensure!(idle.is_empty(), "no command begins so any more, take it from NOT_HERE: {idle:?}");
    for way in [TestedBy::Demo, TestedBy::ControlPlane, TestedBy::Build, TestedBy::Flags] {
        ensure!(commands.iter().any(|command| command.tested_by == way), "no command is {way:?}");
    }
    Ok(())
}

#[test]
fn commands_not_run_by_make_test_are_run_elsewhere() -> Result<()> {
    for one in NOT_HERE {
        let is_typed = texts(&[one.typed_in], &["sh"])?.iter().any(|file| file.text.contains(one.typed_as));
        ensure!(
            is_typed,
            "{} needs {}, and nothing in {} types {:?}",
            one.begins,
            one.needs,
            one.typed_in,
            one.typed_as
        );
    }
    Ok(())
}

/// `make test-kind` runs README's block, and `first_hour` of the control-plane suite uses its cluster and its values.
#[test]
fn the_quickstart_installs_like_the_readme() -> Result<()> {
    let commands = commands()?;
    let install = |page: &str| {
        let of_page = commands.iter().filter(|one| one.place.starts_with(&format!("{page}:")));
        let begun = of_page.skip_while(|one| !one.text.starts_with("kind create cluster"));
        let block = begun.take_while(|one| !one.text.starts_with("helm -n pod-safety test"));
        block.map(|one| one.text.clone()).collect::<Vec<_>>()
    };
    let of_readme = install("README.md");
    ensure!(of_readme.len() == 4, "{of_readme:?}");
    assert_eq!(install("docs/quickstart.md"), of_readme);
    Ok(())
}

#[test]
fn built_artifacts_exist() -> Result<()> {
    for command in commands()?.iter().filter(|command| command.tested_by == TestedBy::Build) {
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
fn a_missing_artifact_is_detected() {
    assert!(can_be_made(&["help"]).is_ok() && can_be_made(&["no-such-target"]).is_err());
    assert!(can_be_run(&["run", "-p", "pod-safety-bench"]).is_ok());
    for (typed, refused) in [
        ("run -p pod-safety-nothing", "pod-safety-nothing"),
        ("run --profile nothing -- demo", "profile `nothing` is not defined"),
        ("run -p pod-safety-locks --features refused", "could not determine which binary to run"),
        ("test --test nothing", "no test target named `nothing`"),
        ("frobnicate", "cargo frobnicate"),
    ] {
        let error = format!("{:#}", can_be_run(&typed.split(' ').collect::<Vec<_>>()).unwrap_err());
        assert!(error.contains(refused), "{typed}: {error}");
    }
}

fn can_be_made(targets: &[&str]) -> Result<()> {
    let output =
        Process::new("make").arg("-n").args(targets).env_remove("MAKEFLAGS").current_dir(repository()).output()?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}

/// Whether cargo finds its targets and, for `run`, exactly one program. Nothing is compiled.
fn can_be_run(arguments: &[&str]) -> Result<()> {
    let own: Vec<&str> = arguments.iter().copied().take_while(|argument| *argument != "--").collect();
    let subcommand = own.first().copied().unwrap_or_default();
    ensure!(["bench", "build", "run", "test"].contains(&subcommand), "cargo {subcommand}");
    let scratch = tempfile::tempdir()?;
    let output = Process::new(env!("CARGO"))
        .args(&own)
        .args((!own.contains(&"--locked")).then_some("--locked"))
        .args(["-Zunstable-options", "--unit-graph"])
        // The unit graph needs an unstable flag. `run` fails after it has printed the graph.
        .env("RUSTC_BOOTSTRAP", "1")
        .env("CARGO_TARGET_DIR", scratch.path())
        .current_dir(repository())
        .output()?;
    let graph: Value =
        serde_json::from_slice(&output.stdout).with_context(|| String::from_utf8_lossy(&output.stderr).into_owned())?;
    let roots = graph["roots"].as_array().context("roots")?.len();
    ensure!(if subcommand == "run" { roots == 1 } else { roots > 0 }, "cargo {subcommand}: {roots} targets");
    Ok(())
}

#[test]
fn a_block_without_a_test_is_refused_with_its_place() -> Result<()> {
    let refused = |page: &str| blocks_of("docs/x.md", page).unwrap_err().to_string();
    assert!(refused("One.\n\n```\nls\n```\n").starts_with("docs/x.md:3: the language of this block is \"\""));
    assert!(refused("```fish\nls\n```\n").starts_with("docs/x.md:1: the language of this block is \"fish\""));
    assert!(refused("```text\nls\n").contains("docs/x.md:1: this block has no end"));
    let refused = |text: &str| format!("{:#}", commands_of(&shell(text)).unwrap_err());
    let error = refused("kubectl get pods\nfrobnicate --now\n");
    assert!(error.starts_with("docs/x.md:7: frobnicate --now: write it as") && error.contains("NOT_HERE"), "{error}");
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
fn commands_are_split_like_a_shell() -> Result<()> {
    let tests_of = |text: &str| -> Result<Vec<(String, TestedBy)>> {
        Ok(commands_of(&shell(text))?.into_iter().map(|command| (command.text, command.tested_by)).collect())
    };
    let one = |text: &str, way| vec![(text.to_owned(), way)];
    assert_eq!(tests_of("pod-safety status   # the leader | and nodes\n")?, one("pod-safety status", TestedBy::Demo));
    assert_eq!(
        tests_of("kubectl pod-safety drain a \\\n  --apply\n")?,
        one("kubectl pod-safety drain a --apply", TestedBy::Demo)
    );
    assert_eq!(tests_of("# a remark\n\n$ make try\nit says && this\n")?, one("make try", TestedBy::Build));
    assert_eq!(tests_of("pod-safety demo --plain | less\n")?, one("pod-safety demo --plain | less", TestedBy::Flags));
    let piped = "pod-safety manifests | kubectl apply -f -";
    assert_eq!(tests_of(piped)?, one(piped, TestedBy::ControlPlane));
    let two = tests_of("make image && kubectl get pods -o 'a && b'\n")?;
    assert_eq!(two[1], ("kubectl get pods -o 'a && b'".to_owned(), TestedBy::ControlPlane));
    assert!(matches!(tests_of("kind load docker-image x\n")?[0].1, TestedBy::NotHere(_)));
    assert_eq!(
        split_words("fence a --reason \"it's  off\" x='y z' ''"),
        ["fence", "a", "--reason", "it's  off", "x=y z", ""]
    );
    assert_eq!(split("a | b '|' \"#\" c#d # e", &["|"]), ["a", "b '|' \"#\" c#d"]);
    Ok(())
}

#[test]
fn placeholders_replace_whole_words() {
    let names = [("NODE", "node-0"), ("api", "shop-0")];
    assert_eq!(
        with_stand_ins("explain node NODE -n api 'spec.nodeName=NODE' pod/NODE api-1 NODES", &names),
        "explain node node-0 -n shop-0 'spec.nodeName=node-0' pod/node-0 api-1 NODES"
    );
}
