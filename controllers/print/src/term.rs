//! Marks, colours and tables for terminals. Colour is never the only carrier of information.

use std::io::IsTerminal;

use clap::ValueEnum;
use pod_safety_process::sanitize;

use super::hint::Commands;

/// When colours are used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Color {
    /// On a terminal, unless NO_COLOR is set
    Auto,
    /// Also into a pipe
    Always,
    /// Not at all
    Never,
}

/// The tone of a line or a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tone {
    /// Fine.
    Good,
    /// Waits, or should be known.
    Attention,
    /// Needs an operator.
    Bad,
    /// A fact.
    Plain,
}

/// The properties of a terminal.
#[derive(Clone, Copy, Debug)]
pub struct Paint {
    color: bool,
    ascii: bool,
    /// `None`: it is no terminal, and no line is wrapped.
    lines: Option<LineWidth>,
    /// Tables without the line of column names.
    headers: bool,
}

/// How lines are wrapped.
#[derive(Clone, Copy, Debug)]
struct LineWidth {
    columns: usize,
    /// Commands, within which no line is wrapped.
    commands: &'static Commands,
}

/// The least number of columns of a last cell that is wrapped.
const NARROWEST_CELL: usize = 32;

/// The most characters of a mark.
const MARK: usize = 2;

/// A terminal with fewer columns is treated as this wide.
const FEWEST_COLUMNS: usize = 20;

impl Paint {
    /// The properties of stdout, and of the environment.
    pub fn for_stdout(color: Color, commands: &'static Commands) -> Self {
        let set = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        let color = match color {
            Color::Always => true,
            Color::Never => false,
            Color::Auto => {
                let dumb = set("TERM").is_some_and(|term| term == "dumb");
                std::io::stdout().is_terminal() && set("NO_COLOR").is_none() && !dumb
            }
        };
        let locale = set("LC_ALL").or_else(|| set("LC_CTYPE")).or_else(|| set("LANG")).unwrap_or_default();
        let unicode = locale.to_lowercase().replace('-', "").contains("utf8");
        Self { color, ascii: !unicode, lines: terminal_width(std::io::stdout(), commands), headers: true }
    }

    /// Without colours, and as wide as the terminal of stderr.
    pub fn for_stderr(commands: &'static Commands) -> Self {
        Self { lines: terminal_width(std::io::stderr(), commands), ..Self::plain() }
    }

    /// Without the line of column names in tables.
    pub const fn without_headers(self, without: bool) -> Self {
        Self { headers: !without, ..self }
    }

    /// Without colours, and without wrapping: for files.
    #[must_use]
    pub const fn plain() -> Self {
        Self { color: false, ascii: false, lines: None, headers: true }
    }

    /// A terminal of this many columns, with these commands unwrapped.
    #[must_use]
    pub const fn with_columns(self, columns: usize, commands: &'static Commands) -> Self {
        Self { lines: Some(LineWidth { columns, commands }), ..self }
    }

    /// A row whose last cell, which begins at this column, is wrapped in a column of its own.
    #[must_use]
    pub fn wrap_row(self, line: &str, at: usize) -> String {
        let (before, cell): (String, String) = (line.chars().take(at).collect(), line.chars().skip(at).collect());
        let lines = self.lines.map(|lines| LineWidth { columns: lines.columns.saturating_sub(at), ..lines });
        let wrapped = Self { lines, ..self }.wrap(&cell, 0);
        format!("{before}{}", wrapped.replace('\n', &format!("\n{}", " ".repeat(at))))
    }

    /// A page with wrapped lines. A line that begins with blanks is a command or a part of a table, and is not changed.
    pub fn wrap_page(self, page: &str) -> String {
        let line = |line: &str| match line {
            kept if kept.starts_with(' ') || kept.contains("   ") => kept.to_owned(),
            bullet if bullet.starts_with("- ") => self.wrap(bullet, 2),
            text => self.wrap(text, 0),
        };
        page.split('\n').map(line).collect::<Vec<_>>().join("\n")
    }

    /// Wrapped text; the lines after the first have `indent` blanks before them. No word and no command that operators
    /// copy is broken.
    #[must_use]
    pub fn wrap(self, text: &str, indent: usize) -> String {
        let text = &*sanitize::line(text);
        let Some(LineWidth { columns, commands }) = self.lines else { return text.to_owned() };
        let (mut wrapped, mut used) = (String::new(), 0);
        for word in split_words(text, commands) {
            let length = word.chars().count();
            if used > 0 && used + 1 + length > columns {
                wrapped.truncate(wrapped.trim_end_matches(' ').len());
                wrapped.push('\n');
                wrapped.push_str(&" ".repeat(indent));
                used = indent;
            } else if used > 0 {
                wrapped.push(' ');
                used += 1;
            }
            wrapped.push_str(word);
            used += length;
        }
        wrapped
    }

    /// A command that operators copy, on a line of its own: never wrapped, and never two lines.
    pub fn command(self, command: &str) -> String {
        if command.is_empty() { String::new() } else { format!("    {}\n", sanitize::line(command)) }
    }

    /// One or two characters before a line.
    pub const fn mark(self, tone: Tone) -> &'static str {
        match (tone, self.ascii) {
            (Tone::Good, false) => "✔",
            (Tone::Good, true) => "ok",
            (Tone::Attention, false) => "!",
            (Tone::Attention, true) => "!!",
            (Tone::Bad, false) => "✖",
            (Tone::Bad, true) => "XX",
            (Tone::Plain, false) => "-",
            (Tone::Plain, true) => "--",
        }
    }

    /// `text` in the colour of `tone`.
    pub fn tone(self, tone: Tone, text: &str) -> String {
        let code = match tone {
            Tone::Good => "32",
            Tone::Attention => "33",
            Tone::Bad => "31",
            Tone::Plain => "2",
        };
        if self.color { format!("\u{1b}[{code}m{text}\u{1b}[0m") } else { text.to_owned() }
    }

    /// A line with the mark of `tone` before it and in its colour, broken where it does not fit.
    pub fn with_mark(self, tone: Tone, text: &str) -> String {
        self.tone(tone, &self.wrap(&format!("{} {text}", self.mark(tone)), 2)) + "\n"
    }

    /// Aligned columns; the whole row has the colour of its tone. Where they do not fit, each row is a paragraph.
    pub fn table(self, head: &[&str], rows: &[(Tone, Vec<String>)]) -> String {
        let cells = |row: &[String]| row.iter().map(|cell| sanitize::line(cell).into_owned()).collect();
        let rows: Vec<(Tone, Vec<String>)> = rows.iter().map(|(tone, row)| (*tone, cells(row))).collect();
        let rows = &*rows;
        let shown = |cell: &&str| if self.headers { cell.chars().count() } else { 0 };
        let mut widths: Vec<usize> = head.iter().map(shown).collect();
        for (_, row) in rows {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = (*width).max(cell.chars().count());
            }
        }
        let fixed: usize = widths.iter().rev().skip(1).map(|width| width + 2).sum();
        let last = widths.last().copied().unwrap_or_default();
        let room = self.lines.map_or(last, |lines| lines.columns.saturating_sub(fixed));
        if room < last.min(NARROWEST_CELL) {
            return self.paragraphs(head, rows);
        }
        let line = |cells: &[String]| {
            let padded = cells.iter().zip(&widths).map(|(cell, &width)| format!("{cell:width$}"));
            let line = padded.collect::<Vec<_>>().join("  ").trim_end().to_owned();
            if room < last { self.wrap_row(&line, fixed) } else { line }
        };
        let head: Vec<String> = head.iter().map(|cell| (*cell).to_owned()).collect();
        let mut text = String::new();
        if self.headers && head.iter().any(|name| !name.is_empty()) {
            text = self.tone(Tone::Plain, &line(&head)) + "\n";
        }
        for (tone, row) in rows {
            let row = line(row);
            let row = if *tone == Tone::Plain || *tone == Tone::Good { row } else { self.tone(*tone, &row) };
            text.push_str(&row);
            text.push('\n');
        }
        text
    }

    /// Each row as a paragraph: each cell has its column name before it, and cells without a name follow one another.
    fn paragraphs(self, head: &[&str], rows: &[(Tone, Vec<String>)]) -> String {
        let mut text = String::new();
        for (tone, row) in rows {
            let mut lines: Vec<String> = Vec::new();
            for (name, cell) in head.iter().zip(row).filter(|(_, cell)| !cell.is_empty()) {
                let named = if name.is_empty() { cell.clone() } else { format!("{}: {cell}", name.to_lowercase()) };
                match lines.last_mut() {
                    // A mark and its text, or all of a row without column names.
                    Some(last) if is_aligned(name, last) => {
                        *last = format!("{last}{}{named}", if last.chars().count() <= MARK { " " } else { "  " })
                    }
                    Some(_) => lines.push(format!("  {named}")),
                    None => lines.push(named),
                }
            }
            for line in lines {
                let line = self.wrap(&line, 4);
                let painted = if matches!(tone, Tone::Plain | Tone::Good) { line } else { self.tone(*tone, &line) };
                text.push_str(&painted);
                text.push('\n');
            }
        }
        text
    }
}

/// The words of a text; a command counts as one word.
fn split_words<'a>(text: &'a str, commands: &Commands) -> Vec<&'a str> {
    let mut pieces = Vec::new();
    let mut written = 0;
    for command in commands.find_in(text) {
        // A character before it without a blank, such as a bracket, belongs to it.
        let start = text[..command.start].rfind(' ').map_or(0, |at| at + 1).max(written);
        let end = text[command.end..].find(' ').map_or(text.len(), |at| command.end + at);
        if start > written {
            pieces.extend(text[written..start - 1].split(' '));
        }
        pieces.push(&text[start..end]);
        written = (end + 1).min(text.len());
    }
    if written < text.len() || text.is_empty() {
        pieces.extend(text[written..].split(' '));
    }
    pieces
}

/// Whether a cell is on the same line as the one before it.
fn is_aligned(name: &str, before: &str) -> bool {
    name.is_empty() || before.chars().count() <= MARK
}

/// The width of the terminal; `None` if it is no terminal.
fn terminal_width(stream: impl std::os::fd::AsFd, commands: &'static Commands) -> Option<LineWidth> {
    let (terminal_size::Width(columns), _) = terminal_size::terminal_size_of(stream)?;
    Some(LineWidth { columns: usize::from(columns).max(FEWEST_COLUMNS), commands })
}

#[cfg(test)]
mod tests {
    use std::sync::LazyLock;

    use super::*;

    static NONE: LazyLock<Commands> = LazyLock::new(|| Commands::from_clap(&clap::Command::new(""), &[]));

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let rows = [(Tone::Bad, vec!["✖".to_owned(), "long".to_owned()])];
        assert_eq!(Paint::plain().table(&["A", "B", "C"], &rows), "A  B     C\n✖  long\n");
    }

    #[test]
    fn rows_that_do_not_fit_become_paragraphs() {
        let rows = [(Tone::Bad, vec!["✖".to_owned(), "a long cell of words".to_owned()])];
        let hanging = Paint::plain().with_columns(40, &NONE);
        let long = "a sentence that is longer than its cell can be";
        let row = [(Tone::Plain, vec!["a".to_owned(), long.to_owned()])];
        assert_eq!(hanging.table(&["", ""], &row), "a  a sentence that is longer than its\n   cell can be\n");
        let narrow = Paint::plain().with_columns(20, &NONE);
        assert_eq!(narrow.table(&["", "WHY"], &rows), "✖ why: a long cell\n    of words\n");
        assert_eq!(narrow.wrap("a name that-is-longer-than-the-line", 2), "a name\n  that-is-longer-than-the-line");
        assert_eq!(Paint::plain().without_headers(true).table(&["A", "B"], &rows), "✖  a long cell of words\n");
    }

    #[test]
    fn colours_are_used_only_if_enabled() {
        let painted = Paint { color: true, ascii: true, ..Paint::plain() };
        assert_eq!(painted.tone(Tone::Bad, "x"), "\u{1b}[31mx\u{1b}[0m");
        assert_eq!(Paint::plain().tone(Tone::Bad, "x"), "x");
        assert_eq!(painted.mark(Tone::Bad), "XX");
    }
}
