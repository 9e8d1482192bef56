//! The terminal on which a command is typed.

use pod_safety_print::{Color, Paint};

use super::called::commands;

/// By what stdout is, and what the environment says.
pub(crate) fn of_stdout(color: Color) -> Paint {
    wide(Paint::of_stdout(color, commands()))
}

/// Without colours, and as wide as the terminal of stderr.
pub(crate) fn of_stderr() -> Paint {
    wide(Paint::of_stderr(commands()))
}

/// As wide as a test says, while one runs.
fn wide(paint: Paint) -> Paint {
    #[cfg(test)]
    if let Some(columns) = super::scripted::columns() {
        return paint.within(columns, commands());
    }
    paint
}
