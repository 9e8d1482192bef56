//! The terminal of a command.

use pod_safety_print::{Color, Paint};

use super::invocation::commands;

/// The properties of stdout, and of the environment.
pub(crate) fn for_stdout(color: Color) -> Paint {
    apply_width(Paint::for_stdout(color, commands()))
}

/// Without colours, and as wide as the terminal of stderr.
pub(crate) fn for_stderr() -> Paint {
    apply_width(Paint::for_stderr(commands()))
}

/// Applies the width that a test has set, if one runs.
fn apply_width(paint: Paint) -> Paint {
    #[cfg(test)]
    if let Some(columns) = super::test_session::columns() {
        return paint.with_columns(columns, commands());
    }
    paint
}
