//! The terminal on which a command is typed.

use pod_safety_print::{Color, Paint};

use super::invocation::commands;

/// By what stdout is, and what the environment says.
pub(crate) fn for_stdout(color: Color) -> Paint {
    apply_width(Paint::for_stdout(color, commands()))
}

/// Without colours, and as wide as the terminal of stderr.
pub(crate) fn for_stderr() -> Paint {
    apply_width(Paint::for_stderr(commands()))
}

/// As wide as a test says, while one runs.
fn apply_width(paint: Paint) -> Paint {
    #[cfg(test)]
    if let Some(columns) = super::test_session::columns() {
        return paint.with_columns(columns, commands());
    }
    paint
}
