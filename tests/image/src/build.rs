//! Builds the image without pulling another one: runs the commands of the build stage on this machine instead of the compiler image, and
//! assembles the root folder of the last stage from its COPY line.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use crate::{Instruction, Stage, dockerfile, repository};

/// The result in `target/image`: its root folder, its user (`UID:GID`), and its entrypoint as JSON.
#[derive(Debug)]
pub struct Image {
    pub root: PathBuf,
    pub user: String,
    pub entrypoint: String,
}

/// Builds it; unchanged parts are not built again.
pub fn build() -> Result<Image> {
    let file = dockerfile()?;
    let [build, _agents, last] = file.stages.as_slice() else { bail!("not three stages") };
    let scratch = fs::canonicalize(repository())?.join("target/image");
    let workdir = scratch.join("context");

    send_context(&workdir)?;
    run_build_stage(build, &workdir, &scratch.join("target"))?;
    let root = assemble(last, build, &workdir, &scratch.join("root"))?;
    let of = |keyword| Ok::<_, anyhow::Error>(last.only(keyword)?.rest.clone());
    Ok(Image { root, user: of("USER")?, entrypoint: of("ENTRYPOINT")? })
}

/// `COPY . .` with .dockerignore. The folder and the modification times are kept between runs, so that cargo reuses its build; files that
/// were removed from the tree are removed here, too.
fn send_context(context: &Path) -> Result<()> {
    let rules = fs::read_to_string(repository().join(".dockerignore"))?;
    let let_in: Vec<&str> = rules.lines().filter_map(|rule| rule.strip_prefix('!')).collect();
    let script = "mkdir -p \"$0\"; (cd \"$0\" && rm -rf -- image \"$@\"); \
        tar -cf - --exclude=target --exclude=.git --exclude=.cache -- \"$@\" | tar -xf - -C \"$0\"";
    let mut shell = Command::new("bash");
    shell.args(["-euo", "pipefail", "-c", script]).arg(context).args(let_in);
    succeed(shell.current_dir(repository()))
}

/// Runs a command, and returns an error if it fails.
fn succeed(command: &mut Command) -> Result<()> {
    let output = command.output()?;
    ensure!(output.status.success(), "{command:?}\n{}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}

/// Runs the RUN lines in order. The cache mount below WORKDIR becomes a link to `cache`; the other one, cargo's registry, is that of this
/// machine.
fn run_build_stage(build: &Stage, workdir: &Path, cache: &Path) -> Result<()> {
    fs::create_dir_all(cache)?;
    let link = workdir.join("target");
    if !link.is_symlink() {
        symlink(cache, &link)?;
    }
    // A build without --build-arg uses the default of an ARG.
    let defaults = build.all("ARG").filter_map(|argument| argument.rest.split_once('='));
    let defaults: Vec<_> = defaults.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
    let environment = build.all("ENV").map(Instruction::pairs).collect::<Result<Vec<_>>>()?.concat();
    for run in build.all("RUN") {
        ensure!(!run.rest.contains(" /"), "an absolute path cannot be run here: {}", run.rest);
        let mut shell = Command::new("sh");
        shell.args(["-eu", "-c", &run.rest]).current_dir(workdir);
        // Settings of the developer's own build must not affect the image.
        for (name, _) in std::env::vars_os() {
            let name = name.to_string_lossy().into_owned();
            let kept = ["CARGO_HOME", "RUSTUP_HOME", "RUSTUP_TOOLCHAIN", "RUST_BACKTRACE"].contains(&name.as_str());
            if !kept && (name.starts_with("CARGO") || name.starts_with("RUST")) {
                shell.env_remove(&name);
            }
        }
        succeed(shell.envs(defaults.iter().cloned()).envs(environment.iter().cloned()))?;
    }
    Ok(())
}

/// The root folder of the image, from the COPY lines of its stage.
fn assemble(last: &Stage, build: &Stage, workdir: &Path, root: &Path) -> Result<PathBuf> {
    if root.exists() {
        fs::remove_dir_all(root)?;
    }
    fs::create_dir_all(root)?;
    let inside = format!("{}/", build.only("WORKDIR")?.rest);
    for line in last.all("COPY") {
        let all = line.rest.strip_suffix(" /").context("COPY files to the root folder")?;
        for from in all.split(' ') {
            let from = from.strip_prefix(&inside).with_context(|| format!("{from} is not below {inside}"))?;
            let name = Path::new(from).file_name().context("COPY files")?;
            fs::copy(workdir.join(from), root.join(name))?;
        }
    }
    Ok(root.to_path_buf())
}
