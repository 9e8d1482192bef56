//! The table of steps at the head of `step.rs`.

use crate::Step;

#[test]
fn the_table_has_one_row_for_each_step() {
    let lines = include_str!("../step.rs").lines();
    let rows: Vec<&str> = lines.filter_map(|line| Some(line.strip_prefix("//! | `")?.split_once('`')?.0)).collect();
    assert_eq!(rows, Step::NAMES);
}
