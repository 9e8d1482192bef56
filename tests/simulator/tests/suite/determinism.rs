//! The same seed gives the same answers, and the same whole world, byte for byte:
//! twice in one process, in another order, and in another process.

use std::io::Write as _;
use std::sync::Arc;

use pod_safety_simulator::api::{ApiServer, Etcd, Kind, Prompt, Transport};
use pod_safety_simulator::campaign::draw;
use pod_safety_simulator::chance::Chance;
use pod_safety_simulator::differential::{Generator, Session, Side, watch_targets};

use crate::paused;
use crate::shipped::SHIPPED;

/// Set in the child process.
const CHILD: &str = "POD_SAFETY_DETERMINISM_CHILD";
const NAME: &str = "determinism::the_same_seed_gives_the_same_answers_in_another_process";
const WORLDS: &str = "determinism::one_world_in_a_hundred_is_the_same_in_another_process_and_order";
/// One in a hundred of the campaign's seeds.
const ONE_IN_A_HUNDRED: std::ops::Range<u64> = 0..20;

/// FNV-1a: stable in every process, which the standard hasher is not.
fn hash(hash: u64, bytes: &[u8]) -> u64 {
    bytes.iter().fold(hash, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01B3))
}

/// Runs a world of its own. Returns the hash of all answers.
fn run(number: u64) -> u64 {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    runtime.block_on(async move {
        let env = paused::env(number);
        let custom = [Kind::custom("nodefences", "NodeFence", false)];
        let etcd = Etcd::new(Chance::new(number), &custom, env.clock.wall());
        let server = ApiServer::start("api", &etcd, env, Arc::new(Prompt));
        let side = Side::new(Transport::new(&server, "test").client(), false);
        let mut generator = Generator::new(Chance::new(1), number);
        let operations = generator.operations();
        let mut session = Session::new(&side, generator.sequence());
        for operation in &operations {
            session.step(operation).await;
        }
        let mut transcript = session.end();
        let targets = watch_targets(generator.sequence(), &transcript.watch_versions());
        transcript.watches = side.watch(&targets, 1).await;
        let mut sum = 0xCBF2_9CE4_8422_2325;
        for reply in &transcript.replies {
            sum = hash(hash(sum, &reply.code.to_le_bytes()), &reply.raw);
        }
        for (kind, object) in transcript.watches.iter().flat_map(|watch| &watch.events) {
            sum = hash(hash(sum, kind.as_bytes()), object.to_string().as_bytes());
        }
        sum
    })
}

fn all() -> Vec<u64> {
    (1..=40).map(run).collect()
}

#[test]
fn the_same_seed_gives_the_same_answers_in_one_process() {
    let first = all();
    let mut backwards: Vec<u64> = (1..=40).rev().map(run).collect();
    backwards.reverse();
    assert_eq!(first, backwards);
    let distinct: std::collections::BTreeSet<u64> = first.iter().copied().collect();
    assert_eq!(distinct.len(), first.len(), "other seeds give other answers");
}

#[test]
fn the_same_seed_gives_the_same_answers_in_another_process() {
    compare_with_a_child(NAME, &format!("hashes {:?}", all()));
}

/// Prints the line, and in the parent checks that a child prints the same.
fn compare_with_a_child(name: &str, line: &str) {
    let _written = writeln!(std::io::stdout(), "\n{line}");
    if std::env::var_os(CHILD).is_some() {
        return;
    }
    let own = std::env::current_exe().unwrap();
    let child =
        std::process::Command::new(own).args(["--exact", name, "--nocapture"]).env(CHILD, "1").output().unwrap();
    let output = String::from_utf8_lossy(&child.stdout);
    assert!(output.contains(line), "the other process said:\n{output}");
}

fn hash_of_world(seed: u64) -> u64 {
    pod_safety_simulator::world::run(&draw(seed), SHIPPED).hash
}

/// Spread over the campaign's seeds, and the last of them too.
fn world(number: u64) -> u64 {
    hash_of_world(number * 100 + 99)
}

/// One channel told both controllers that their process leads, and it wakes its receivers in random order: in this
/// world either may write first.
#[test]
fn bug_two_controllers_receive_a_new_term_in_a_fixed_order() {
    let hashes: std::collections::BTreeSet<u64> = (0..8).map(|_again| hash_of_world(1799)).collect();
    assert_eq!(hashes.len(), 1);
}

#[test]
fn one_world_in_a_hundred_is_the_same_in_another_process_and_order() {
    let hashes: Vec<u64> = ONE_IN_A_HUNDRED.map(world).collect();
    let mut backwards: Vec<u64> = ONE_IN_A_HUNDRED.rev().map(world).collect();
    backwards.reverse();
    assert_eq!(hashes, backwards);
    let distinct: std::collections::BTreeSet<u64> = hashes.iter().copied().collect();
    assert_eq!(distinct.len(), hashes.len(), "other seeds are other worlds");
    compare_with_a_child(WORLDS, &format!("worlds {hashes:?}"));
}
