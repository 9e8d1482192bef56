//! Several scenarios on one control plane concurrently: a scenario mostly waits.

use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::time::Instant;

use futures::FutureExt as _;
use futures::future::join_all;

/// One scenario; it fails by panicking.
pub type Scenario<'a> = Pin<Box<dyn Future<Output = ()> + 'a>>;

/// Runs all of them to their ends, prints their durations, and panics if one did.
pub async fn run_scenarios(scenarios: Vec<(&'static str, Scenario<'_>)>) {
    let runs = scenarios.into_iter().map(|(name, scenario)| async move {
        let began = Instant::now();
        let good = AssertUnwindSafe(scenario).catch_unwind().await.is_ok();
        print_line(&format!(
            "{} {:5.1} s  {name}",
            if good { "ok    " } else { "FAILED" },
            began.elapsed().as_secs_f64()
        ));
        (!good).then_some(name)
    });
    let failed: Vec<&str> = join_all(runs).await.into_iter().flatten().collect();
    assert!(failed.is_empty(), "failed: {}", failed.join(", "));
}

#[expect(clippy::print_stdout, reason = "part of a test's own output")]
fn print_line(line: &str) {
    println!("{line}");
}

/// `scenarios![f(&plane), g(&plane)]` runs these async functions concurrently; their names are printed.
#[macro_export]
macro_rules! scenarios {
    ($($name:ident($($argument:expr),* $(,)?)),+ $(,)?) => {
        $crate::run_scenarios(vec![$((stringify!($name), Box::pin($name($($argument),*)))),+]).await
    };
}
