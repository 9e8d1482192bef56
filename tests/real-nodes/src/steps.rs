//! Steps with names, and how long each took.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};

use crate::beside::print_line;

pub(crate) struct Steps {
    run: &'static str,
    took: Vec<(&'static str, Duration)>,
}

impl Steps {
    pub(crate) const fn new(run: &'static str) -> Self {
        Self { run, took: Vec::new() }
    }

    pub(crate) async fn step<T>(&mut self, name: &'static str, what: impl Future<Output = Result<T>>) -> Result<T> {
        let begun = Instant::now();
        let done = what.await.context(name)?;
        print_line(&format!("{}: {name}: {:.0} s", self.run, begun.elapsed().as_secs_f64()));
        self.took.push((name, begun.elapsed()));
        Ok(done)
    }

    pub(crate) fn markdown(&self) -> String {
        let row = |(name, took): &(&str, Duration)| format!("| {name} | {:.0} |\n", took.as_secs_f64());
        format!("| step | s |\n|---|---:|\n{}", self.took.iter().map(row).collect::<String>())
    }
}
