//! Tests of all commands together: the commands in their output can be run.

mod command_hints;
