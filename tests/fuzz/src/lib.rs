//! Common code of the fuzz targets.
//!
//! A target is an ordinary test in a module named `fuzz` of the crate under test, so it reaches private functions and product code needs no
//! entry point for it. It calls [`fuzz!`] with the number of inputs for `make test` and with a check, which turns each input into a case
//! with a [`Draw`] and compares the result with its own oracle.
//!
//! | module | subject |
//! |---|---|
//! | [`draw`] | bytes as choices |
//! | [`json`] | changes to a JSON value |
//! | [`protobuf`] | changes to a protobuf message, by its fields |
//!
//! `make test` runs each target on the inputs in its folder below `__fuzz__`, and then on random inputs. `make fuzz` runs the same targets
//! under libFuzzer, which adds inputs that reach new code. A finding becomes a separate test, named `bug_…`, with its bytes: the meaning of
//! an input changes with the code of a target.
#![forbid(unsafe_code)]

pub mod draw;
pub mod json;
pub mod protobuf;

#[doc(hidden)]
pub use bolero;
use bolero::TargetLocation;
pub use draw::Draw;
use proptest::prelude::Rng as _;
use proptest::test_runner::{RngAlgorithm, TestRng};

/// Enough for the choices of any case. Longer inputs make longer cases, and no new ones.
const MAX_INPUT: usize = 1024;

/// Inputs and findings are stored beside this file, in a folder for each target.
#[doc(hidden)]
pub const HOME: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");

/// Runs a check on the stored inputs of the current test, and on this many random ones, which are equal in each run.
#[macro_export]
macro_rules! fuzz {
    ($inputs:expr, $check:expr) => {
        $crate::run(
            $crate::bolero::TargetLocation {
                package_name: env!("CARGO_PKG_NAME"),
                manifest_dir: env!("CARGO_MANIFEST_DIR"),
                module_path: module_path!(),
                file: $crate::HOME,
                line: line!(),
                item_path: $crate::bolero::__item_path__!(),
                test_name: None,
            },
            $inputs,
            $check,
        )
    };
}

/// See [`fuzz!`].
#[doc(hidden)]
pub fn run(place: TargetLocation, inputs: usize, check: fn(&mut Draw<'_>)) {
    if !place.should_run() {
        return;
    }
    // Besides the stored inputs, equal random ones in each run: `make fuzz` finds new failures, and not an unrelated change.
    let mut random = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
    for _ in 0..inputs {
        let mut bytes = vec![0; random.next_u32() as usize % MAX_INPUT];
        random.fill_bytes(&mut bytes);
        check(&mut Draw::new(&bytes));
    }
    let target = bolero::test(place).with_iterations(0).with_max_len(MAX_INPUT);
    target.for_each(move |bytes: &[u8]| check(&mut Draw::new(bytes)));
}
