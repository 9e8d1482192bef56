//! Colours, and how a time is written.

use std::time::Duration;

use ratatui::style::{Color, Modifier, Style};

pub(super) const BAD: Style = Style::new().fg(Color::Red).add_modifier(Modifier::BOLD);
pub(super) const WARN: Style = Style::new().fg(Color::Yellow);
pub(super) const GOOD: Style = Style::new().fg(Color::Green);
pub(super) const DIM: Style = Style::new().fg(Color::DarkGray);

pub(super) fn clock(at: Duration) -> String {
    format!("{:02}:{:02}.{}", at.as_secs() / 60, at.as_secs() % 60, at.subsec_millis() / 100)
}
