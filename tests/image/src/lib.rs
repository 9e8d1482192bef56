//! Parses the Dockerfile of this repository: an unknown construct is an error and no guess.
//! (The parsers on crates.io keep one `--mount` of a RUN line and do not distinguish exec and shell form.)
#![expect(missing_docs, reason = "it serves the tests beside it")]

mod build;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};

pub use build::{Image, build};

/// One instruction of a Dockerfile, with its continuation lines joined: keyword, options without dashes, arguments.
#[derive(Debug)]
pub struct Instruction {
    keyword: String,
    options: Vec<String>,
    pub rest: String,
}

/// A stage from one `FROM` to the next; arguments in the name of its base are replaced.
#[derive(Debug)]
pub struct Stage {
    pub base: String,
    pub name: Option<String>,
    instructions: Vec<Instruction>,
}

/// A whole Dockerfile; its arguments are the `ARG`s before the first `FROM`.
#[derive(Debug, Default)]
pub struct Dockerfile {
    pub arguments: Vec<(String, String)>,
    pub stages: Vec<Stage>,
}

const KEYWORDS: &str = " FROM ARG ENV WORKDIR COPY RUN LABEL USER EXPOSE ENTRYPOINT CMD STOPSIGNAL ";

impl Dockerfile {
    /// Parses a Dockerfile. Every construct that this repository does not use is an error.
    pub fn parse(text: &str) -> Result<Self> {
        let mut file = Self::default();
        for line in joined_lines(text)? {
            let instruction = Instruction::parse(&line)?;
            match (instruction.keyword.as_str(), file.stages.last_mut()) {
                ("FROM", _) => {
                    let stage = file.stage(&instruction)?;
                    file.stages.push(stage);
                }
                ("ARG", None) => file.arguments.push(pair(&instruction.rest)?),
                (_, Some(stage)) => stage.instructions.push(instruction),
                (keyword, None) => bail!("{keyword} before the first FROM"),
            }
        }
        Ok(file)
    }

    pub fn last(&self) -> Result<&Stage> {
        self.stages.last().context("no stage")
    }

    fn stage(&self, from: &Instruction) -> Result<Stage> {
        ensure!(from.options.is_empty(), "FROM with options: {:?}", from.options);
        let filled = |base: String, (name, value): &(String, String)| base.replace(&format!("${{{name}}}"), value);
        let base = self.arguments.iter().fold(from.rest.clone(), filled);
        let (base, name) = match *base.split_whitespace().collect::<Vec<_>>() {
            [base] => (base.to_owned(), None),
            [base, "AS", name] => (base.to_owned(), Some(name.to_owned())),
            _ => bail!("not understood: FROM {base}"),
        };
        Ok(Stage { base, name, instructions: Vec::new() })
    }
}

impl Stage {
    pub fn all(&self, keyword: &str) -> impl Iterator<Item = &Instruction> {
        self.instructions.iter().filter(move |instruction| instruction.keyword == keyword)
    }

    /// The instruction with this keyword, of which there must be exactly one.
    pub fn only(&self, keyword: &str) -> Result<&Instruction> {
        let all: Vec<_> = self.all(keyword).collect();
        ensure!(all.len() == 1, "{} times {keyword} from {}", all.len(), self.base);
        Ok(all[0])
    }
}

impl Instruction {
    fn parse(line: &str) -> Result<Self> {
        let (keyword, mut rest) = line.split_once(' ').with_context(|| format!("no argument: {line}"))?;
        ensure!(KEYWORDS.contains(&format!(" {keyword} ")), "not used here, so not understood: {line}");
        let mut options = Vec::new();
        rest = rest.trim_start();
        while let Some(option) = rest.strip_prefix("--") {
            let (option, after) = option.split_once(' ').with_context(|| format!("only options: {line}"))?;
            ensure!(option.contains('='), "an option without a value: {line}");
            options.push(option.to_owned());
            rest = after.trim_start();
        }
        Ok(Self { keyword: keyword.into(), options, rest: rest.into() })
    }

    /// The values of `--name=value`, in order.
    pub fn option(&self, name: &str) -> impl Iterator<Item = &str> {
        self.options.iter().filter_map(move |option| option.strip_prefix(name)?.strip_prefix('='))
    }

    /// Every `key=value` of an ENV or LABEL line; a value is bare or in double quotes.
    pub fn pairs(&self) -> Result<Vec<(String, String)>> {
        let mut pairs = Vec::new();
        let mut rest = self.rest.trim_start();
        while !rest.is_empty() {
            let (key, after) = rest.split_once('=').with_context(|| format!("no '=' in: {rest}"))?;
            let (value, after) = match after.strip_prefix('"') {
                Some(quoted) => quoted.split_once('"').context("a quote is not closed")?,
                None => after.split_once(char::is_whitespace).unwrap_or((after, "")),
            };
            pairs.push((key.into(), value.into()));
            rest = after.trim_start();
        }
        Ok(pairs)
    }
}

pub fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

pub fn dockerfile() -> Result<Dockerfile> {
    Dockerfile::parse(&std::fs::read_to_string(repository().join("Dockerfile"))?)
}

/// Lines without comments; continuation lines are joined like by the builder.
fn joined_lines(text: &str) -> Result<Vec<String>> {
    let mut lines = Vec::new();
    let mut open = String::new();
    for line in text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')) {
        match line.strip_suffix('\\') {
            Some(more) => open.push_str(more),
            None => lines.push(std::mem::take(&mut open) + line),
        }
    }
    ensure!(open.is_empty(), "the last line is continued: {open}");
    Ok(lines)
}

fn pair(text: &str) -> Result<(String, String)> {
    let (key, value) = text.split_once('=').with_context(|| format!("no default: {text}"))?;
    Ok((key.into(), value.into()))
}
