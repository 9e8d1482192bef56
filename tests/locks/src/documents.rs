//! The fenced blocks of the documentation, and which test runs each command.

mod commands;
mod shell_words;

use anyhow::{Result, bail, ensure};

pub use commands::{Command, Elsewhere, NOT_HERE, TestedBy, commands, commands_of, idle_exceptions};
pub use shell_words::{split, split_words, with_stand_ins};

use crate::{Source, texts};

/// The languages of shell blocks.
const SHELL: [&str; 4] = ["bash", "console", "sh", "shell"];
/// The languages of manifest blocks, which are applied to an API server.
const YAML: [&str; 2] = ["yaml", "yml"];
/// The languages of blocks for display only.
const SHOWN: [&str; 5] = ["dockerfile", "json", "mermaid", "promql", "text"];

/// A fenced block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    /// Its file, relative to the root of the repository.
    pub file: String,
    /// The line of its fence.
    pub line: usize,
    /// The language behind the fence.
    pub language: String,
    /// The line before the fence.
    pub before: String,
    /// What is in it.
    pub text: String,
}

impl Block {
    /// File and line.
    #[must_use]
    pub fn place(&self) -> String {
        format!("{}:{}", self.file, self.line)
    }

    /// Whether it is applied to an API server.
    #[must_use]
    pub fn is_yaml(&self) -> bool {
        YAML.contains(&self.language.as_str())
    }

    /// Whether it has commands to type.
    #[must_use]
    pub fn is_shell(&self) -> bool {
        SHELL.contains(&self.language.as_str())
    }

    /// Its commands. In a block with prompts, lines without a prompt are output.
    fn lines(&self) -> Vec<(usize, String)> {
        let has_prompts = self.text.lines().any(|line| line.trim_start().starts_with("$ "));
        let mut lines: Vec<(usize, String)> = Vec::new();
        let mut goes_on = false;
        for (line, text) in (self.line + 1..).zip(self.text.lines()) {
            let text = text.trim();
            let typed = if has_prompts { text.strip_prefix("$ ") } else { Some(text) };
            let whole = text.trim_end_matches('\\').trim_end();
            match (lines.last_mut(), typed) {
                (Some((_, last)), _) if goes_on => *last = format!("{last} {whole}"),
                (_, Some(typed)) if !typed.is_empty() && !typed.starts_with('#') => {
                    lines.push((line, typed.trim_end_matches('\\').trim_end().to_owned()));
                }
                _ => continue,
            }
            goes_on = text.ends_with('\\');
        }
        lines
    }
}

/// The pages of the documentation.
fn pages() -> Result<Vec<Source>> {
    texts(&["CONTRIBUTING.md", "README.md", "SECURITY.md", "charts", "docs"], &["md"])
}

/// Every block of every page.
///
/// # Errors
/// If a page cannot be read, or a block has no known language or no end.
pub fn blocks() -> Result<Vec<Block>> {
    let pages = pages()?;
    let all: Result<Vec<_>> = pages.iter().map(|page| blocks_of(&page.path, &page.text)).collect();
    Ok(all?.concat())
}

/// The blocks of one page.
///
/// # Errors
/// If one has no known language or no end.
pub fn blocks_of(file: &str, page: &str) -> Result<Vec<Block>> {
    let mut blocks: Vec<Block> = Vec::new();
    let (mut open, mut before) = (false, "");
    for (line, text) in (1..).zip(page.lines()) {
        let fence = text.trim_start().strip_prefix("```");
        match (fence, blocks.last_mut().filter(|_| open)) {
            (Some(_), Some(_)) => open = false,
            (None, Some(block)) => block.text.push_str(&format!("{text}\n")),
            (Some(language), None) => {
                let (file, language, before) = (file.to_owned(), language.trim().to_owned(), before.to_owned());
                blocks.push(Block { file, line, language, before, text: String::new() });
                open = true;
            }
            (None, None) => {}
        }
        before = text.trim();
    }
    if let Some(block) = blocks.last().filter(|_| open) {
        bail!("{}: this block has no end", block.place());
    }
    for block in &blocks {
        let is_known = block.is_yaml() || block.is_shell() || SHOWN.contains(&block.language.as_str());
        ensure!(
            is_known,
            "{}: the language of this block is {:?}: a block to copy is console or yaml, and one to look at {}",
            block.place(),
            block.language,
            SHOWN.join(", ")
        );
    }
    Ok(blocks)
}

/// The `pod-safety` commands that the pages quote in a sentence, or show with their output: place and command.
///
/// # Errors
/// If a page cannot be read.
pub fn quoted() -> Result<Vec<(String, String)>> {
    let mut commands = Vec::new();
    for Source { path: file, text: page } in pages()? {
        let (mut prose, mut in_block) = (String::new(), false);
        for (line, text) in (1..).zip(page.lines()) {
            let is_fence = text.trim_start().starts_with("```");
            in_block ^= is_fence;
            if let Some(typed) = text.trim_start().strip_prefix("$ ").filter(|_| in_block) {
                commands.push((format!("{file}:{line}"), typed.to_owned()));
            }
            prose.push_str(if in_block || is_fence { "" } else { text });
            prose.push('\n');
        }
        let mut line = 1;
        // Backticks pair up within one paragraph.
        for paragraph in prose.split("\n\n") {
            for (number, span) in paragraph.split('`').enumerate() {
                if number % 2 == 1 {
                    let one_line = span.split_whitespace().collect::<Vec<_>>().join(" ");
                    commands.push((format!("{file}:{line}"), one_line));
                }
                line += span.matches('\n').count();
            }
            line += 2;
        }
    }
    commands.retain(|(_, text)| text.starts_with("pod-safety ") || text.starts_with("kubectl pod-safety "));
    Ok(commands)
}
