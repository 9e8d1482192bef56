//! Reads the Dockerfile, as far as ours goes: anything it does not know is an error rather than a guess.
//! (The parsers on crates.io keep one `--mount` of a RUN line and lose whether a form was exec or shell.)

mod build;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};

pub use build::{Image, build};

/// One line of a Dockerfile, continuations joined.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Instruction {
    /// `FROM`, `RUN`, …
    pub keyword: String,
    /// `--mount=…`, `--from=…`, in order and without the dashes.
    pub options: Vec<(String, String)>,
    /// The rest of the line.
    pub rest: String,
}

/// All from one `FROM` to the next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stage {
    /// What it starts from, arguments filled in.
    pub base: String,
    /// `AS name`.
    pub name: Option<String>,
    /// All after the `FROM`.
    pub instructions: Vec<Instruction>,
}

/// A whole Dockerfile.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dockerfile {
    /// The `ARG`s before the first `FROM`.
    pub arguments: Vec<(String, String)>,
    /// From the first to the one that becomes the image.
    pub stages: Vec<Stage>,
}

const KEYWORDS: [&str; 12] = [
    "FROM",
    "ARG",
    "ENV",
    "WORKDIR",
    "COPY",
    "RUN",
    "LABEL",
    "USER",
    "EXPOSE",
    "ENTRYPOINT",
    "CMD",
    "STOPSIGNAL",
];

impl Dockerfile {
    /// Reads the text of a Dockerfile.
    ///
    /// # Errors
    /// For every construct that our own file does not use.
    pub fn parse(text: &str) -> Result<Self> {
        let mut file = Self { arguments: Vec::new(), stages: Vec::new() };
        for line in joined_lines(text)? {
            let instruction = instruction(&line)?;
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

    /// The stage that becomes the image.
    ///
    /// # Errors
    /// If there is none.
    pub fn last(&self) -> Result<&Stage> {
        self.stages.last().context("no stage")
    }

    fn stage(&self, from: &Instruction) -> Result<Stage> {
        ensure!(from.options.is_empty(), "FROM with options: {:?}", from.options);
        let mut base = from.rest.clone();
        for (name, value) in &self.arguments {
            base = base.replace(&format!("${{{name}}}"), value);
        }
        let words: Vec<&str> = base.split_whitespace().collect();
        match words.as_slice() {
            [base] => Ok(Stage { base: (*base).into(), name: None, instructions: Vec::new() }),
            [base, "AS", name] => {
                Ok(Stage { base: (*base).into(), name: Some((*name).into()), instructions: Vec::new() })
            }
            _ => bail!("not understood: FROM {base}"),
        }
    }
}

impl Stage {
    /// All instructions with this keyword.
    pub fn all<'a>(&'a self, keyword: &'a str) -> impl Iterator<Item = &'a Instruction> {
        self.instructions.iter().filter(move |instruction| instruction.keyword == keyword)
    }

    /// The instruction with this keyword, of which there must be exactly one.
    ///
    /// # Errors
    /// If there are none, or two.
    pub fn only<'a>(&'a self, keyword: &'a str) -> Result<&'a Instruction> {
        let all: Vec<_> = self.all(keyword).collect();
        ensure!(all.len() == 1, "{} times {keyword} from {}", all.len(), self.base);
        Ok(all[0])
    }
}

impl Instruction {
    /// The values of `--name=value`, in order.
    pub fn option<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.options.iter().filter(move |(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    /// Every `key=value` of an ENV or LABEL line.
    ///
    /// # Errors
    /// If a value is neither bare nor in double quotes.
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

/// The root of the repository.
pub fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The repository's own Dockerfile.
///
/// # Errors
/// If it cannot be read or understood.
pub fn dockerfile() -> Result<Dockerfile> {
    Dockerfile::parse(&std::fs::read_to_string(repository().join("Dockerfile"))?)
}

/// Lines without comments, continuations joined as the builder does.
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

fn instruction(line: &str) -> Result<Instruction> {
    let (keyword, mut rest) = line.split_once(' ').with_context(|| format!("no argument: {line}"))?;
    ensure!(KEYWORDS.contains(&keyword), "not used here, so not understood: {line}");
    let mut options = Vec::new();
    rest = rest.trim_start();
    while let Some(option) = rest.strip_prefix("--") {
        let (option, after) = option.split_once(' ').with_context(|| format!("only options: {line}"))?;
        options.push(pair(option)?);
        rest = after.trim_start();
    }
    Ok(Instruction { keyword: keyword.into(), options, rest: rest.into() })
}

fn pair(text: &str) -> Result<(String, String)> {
    let (key, value) = text.split_once('=').with_context(|| format!("no default: {text}"))?;
    Ok((key.into(), value.into()))
}
