//! Sanitizes texts from the cluster before a terminal, a log or a report shows them.
//!
//! Any tenant can write messages of Events, and a kubelet those of its node. Control characters in them can make a
//! terminal hide lines, or show other commands than those that are copied from it (CVE-2021-25743 of kubectl).
//! Invariant: except line ends, tabs and the colours of the commands no control character leaves this program; a text
//! of the cluster stays on its line.

use std::borrow::Cow;

use serde_json::Value;

/// The colours that this program writes.
const COLOURS: [&str; 5] = ["\u{1b}[0m", "\u{1b}[2m", "\u{1b}[31m", "\u{1b}[32m", "\u{1b}[33m"];

/// Restarts the line: its content (the last progress, a `^C` that was typed) is erased.
pub const CLEAR_LINE: &str = "\r\u{1b}[K";
/// Moves to the top left corner, and erases the screen.
pub const CLEAR_SCREEN: &str = "\u{1b}[H\u{1b}[2J";

/// Control characters of terminals, and characters that reorder, hide or break text: directions, zero-width spaces,
/// line separators.
pub const fn is_control(letter: char) -> bool {
    matches!(
        letter,
        '\u{0}'..='\u{1f}' | '\u{7f}'..='\u{9f}' | '\u{61c}' | '\u{200b}' | '\u{200e}' | '\u{200f}'
            | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}'
    )
}

/// A text of the cluster, for use within a line.
pub fn line(text: &str) -> Cow<'_, str> {
    if !text.contains(is_control) {
        return Cow::Borrowed(text);
    }
    let escaped = text.chars().map(|letter| if is_control(letter) { escape(letter) } else { letter.to_string() });
    Cow::Owned(escaped.collect())
}

/// Sanitizes each text of a document that is shown unchanged.
pub fn json_texts(document: &mut Value) {
    match document {
        Value::String(text) => *text = line(text).into_owned(),
        Value::Array(all) => all.iter_mut().for_each(json_texts),
        Value::Object(all) => all.values_mut().for_each(json_texts),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// A whole page, or one log entry without its line end. Sequences that erase are allowed only at its beginning, where
/// there is no text of the cluster.
pub fn page(text: &str) -> Cow<'_, str> {
    if let Some(erases) = [CLEAR_LINE, CLEAR_SCREEN].into_iter().find(|erases| text.starts_with(erases)) {
        return Cow::Owned(format!("{erases}{}", page(text.get(erases.len()..).unwrap_or_default())));
    }
    let needs_escape = |letter: char| is_control(letter) && !matches!(letter, '\n' | '\t');
    if !text.contains(needs_escape) {
        return Cow::Borrowed(text);
    }
    // A JSON document for programs has its own escapes.
    let is_json = text.starts_with(['{', '[']);
    let (mut clean, mut rest) = (String::with_capacity(text.len()), text);
    while let Some(letter) = rest.chars().next() {
        let colour = COLOURS.iter().find(|colour| rest.starts_with(**colour)).filter(|_| !is_json);
        let length = colour.map_or(letter.len_utf8(), |colour| colour.len());
        let (this, after) = rest.split_at(length);
        match (colour, needs_escape(letter)) {
            (None, true) if is_json => clean.push_str(&format!("\\u{:04x}", u32::from(letter))),
            (None, true) => clean.push_str(&escape(letter)),
            _ => clean.push_str(this),
        }
        rest = after;
    }
    Cow::Owned(clean)
}

fn escape(letter: char) -> String {
    match letter {
        '\n' => "\\n".to_owned(),
        '\r' => "\\r".to_owned(),
        '\t' => "\\t".to_owned(),
        _ => letter.escape_unicode().to_string(),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn attack_a_text_of_the_cluster_stays_on_its_line_and_reorders_nothing() {
        for (text, shown) in [
            ("ended\u{1b}[2J\u{1b}]0;title\u{7}", "ended\\u{1b}[2J\\u{1b}]0;title\\u{7}"),
            ("x\nNEXT kubectl delete pod db-0 --force", "x\\nNEXT kubectl delete pod db-0 --force"),
            ("over\rwritten\ttab", "over\\rwritten\\ttab"),
            ("\u{202e}txt.exe\u{2066}", "\\u{202e}txt.exe\\u{2066}"),
            ("c1 \u{9b}31m", "c1 \\u{9b}31m"),
            ("grün ✔ 日本", "grün ✔ 日本"),
        ] {
            assert_eq!(line(text), shown);
        }
    }

    #[test]
    fn a_page_keeps_its_lines_and_colours_and_a_document_stays_valid() {
        let page_of_ours = "\u{1b}[31mbad\u{1b}[0m\n\tx\n";
        assert_eq!(page(page_of_ours), page_of_ours);
        assert_eq!(page("\u{1b}[31m\u{1b}[2J"), "\u{1b}[31m\\u{1b}[2J");
        assert_eq!(page("\r\u{1b}[K1 gone \r\u{1b}[K"), "\r\u{1b}[K1 gone \\r\\u{1b}[K");
        let document = serde_json::json!({ "message": "\u{1b}[31m\u{202e}x\u{7f}" });
        let text = page(&format!("{document:#}")).into_owned();
        assert!(!text.contains(['\u{202e}', '\u{7f}', '\u{1b}']), "{text}");
        assert_eq!(serde_json::from_str::<serde_json::Value>(&text).unwrap(), document);
    }

    proptest! {
        #[test]
        fn no_control_character_remains_in_any_text(text in any::<String>()) {
            prop_assert!(!line(&text).contains(is_control));
            let text = format!("x{text}");
            let page = COLOURS.iter().fold(page(&text).into_owned(), |page, colour| page.replace(colour, ""));
            prop_assert!(!page.contains(|letter| is_control(letter) && letter != '\n' && letter != '\t'));
        }
    }
}
