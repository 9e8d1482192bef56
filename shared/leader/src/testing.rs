//! Captures the log of a test, on its thread.

use std::fmt::Debug;
use std::sync::Arc;

use parking_lot::Mutex;
use tracing::field::Field;
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::{DefaultGuard, NoSubscriber, set_default};
use tracing::{Dispatch, Event, Metadata, Subscriber};

/// Captures the lines of this thread until it is dropped.
pub struct CapturedLogs {
    lines: Arc<Mutex<Vec<String>>>,
    _until: DefaultGuard,
    /// With a single dispatcher, tracing caches whether a line is enabled, with the result of the first thread that reaches it.
    _second: Dispatch,
}

impl CapturedLogs {
    /// Starts capturing.
    #[must_use]
    pub fn capture() -> Self {
        let (lines, second) = (Arc::default(), Dispatch::new(NoSubscriber::default()));
        Self { _until: set_default(Lines(Arc::clone(&lines))), lines, _second: second }
    }

    /// The lines since the last call: level, text and fields.
    #[must_use]
    pub fn take_lines(&self) -> Vec<String> {
        std::mem::take(&mut *self.lines.lock())
    }
}

struct Lines(Arc<Mutex<Vec<String>>>);

impl Subscriber for Lines {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }
    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }
    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut line = event.metadata().level().to_string();
        event.record(&mut |field: &Field, value: &dyn Debug| match field.name() {
            "message" => line.push_str(&format!(" {value:?}")),
            name => line.push_str(&format!(" {name}={value:?}")),
        });
        self.0.lock().push(line);
    }
}
