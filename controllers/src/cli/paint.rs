//! Marks, colours and tables for people. Colour is never the only carrier.

use std::io::IsTerminal;

use clap::ValueEnum;

/// When colours are used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Color {
    /// On a terminal, unless NO_COLOR is set
    Auto,
    /// Also into a pipe
    Always,
    /// Not at all
    Never,
}

/// What a mark says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tone {
    /// Fine.
    Good,
    /// Waits, or should be known.
    Attention,
    /// Needs a person.
    Bad,
    /// A fact.
    Plain,
}

/// How this terminal is written to.
#[derive(Clone, Copy, Debug)]
pub(super) struct Paint {
    color: bool,
    ascii: bool,
}

impl Paint {
    /// By what stdout is, and what the environment says.
    pub(super) fn of_stdout(color: Color) -> Self {
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
        Self { color, ascii: !unicode }
    }

    /// Without colours: for tests.
    #[cfg(test)]
    pub(super) const fn plain() -> Self {
        Self { color: false, ascii: false }
    }

    /// One or two characters before a line.
    pub(super) const fn mark(self, tone: Tone) -> &'static str {
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
    pub(super) fn tone(self, tone: Tone, text: &str) -> String {
        let code = match tone {
            Tone::Good => "32",
            Tone::Attention => "33",
            Tone::Bad => "31",
            Tone::Plain => "2",
        };
        if self.color { format!("\u{1b}[{code}m{text}\u{1b}[0m") } else { text.to_owned() }
    }

    /// Aligned columns; the whole row has the colour of its tone.
    pub(super) fn table(self, head: &[&str], rows: &[(Tone, Vec<String>)]) -> String {
        let mut widths: Vec<usize> = head.iter().map(|cell| cell.chars().count()).collect();
        for (_, row) in rows {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = (*width).max(cell.chars().count());
            }
        }
        let line = |cells: &[String]| {
            let padded = cells.iter().zip(&widths).map(|(cell, &width)| format!("{cell:width$}"));
            padded.collect::<Vec<_>>().join("  ").trim_end().to_owned()
        };
        let head: Vec<String> = head.iter().map(|cell| (*cell).to_owned()).collect();
        let mut text = self.tone(Tone::Plain, &line(&head)) + "\n";
        for (tone, row) in rows {
            let row = line(row);
            let row = if *tone == Tone::Plain || *tone == Tone::Good { row } else { self.tone(*tone, &row) };
            text.push_str(&row);
            text.push('\n');
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let rows = [(Tone::Bad, vec!["✖".to_owned(), "long".to_owned()])];
        assert_eq!(Paint::plain().table(&["A", "B", "C"], &rows), "A  B     C\n✖  long\n");
    }

    #[test]
    fn colours_are_only_where_they_are_wanted() {
        let painted = Paint { color: true, ascii: true };
        assert_eq!(painted.tone(Tone::Bad, "x"), "\u{1b}[31mx\u{1b}[0m");
        assert_eq!(Paint::plain().tone(Tone::Bad, "x"), "x");
        assert_eq!(painted.mark(Tone::Bad), "XX");
    }
}
