//! One history of taints and tolerations, lived through by kube-controller-manager's taint eviction controller and by
//! ours, each on a control plane of its own. In the end the same pods were asked to end, in the same order, with the
//! same grace, condition and Events; but for [`DIFFERENCES`], where a weak spot of kube-controller-manager shows, and
//! both sides are as said there.
#![expect(clippy::disallowed_methods, reason = "tests drive a real cluster in real time")]
#![expect(clippy::unwrap_used, reason = "scenarios may fail as loudly as the test that runs them")]

mod taints;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use futures::join;
use k8s_openapi::jiff::Timestamp;
use pod_safety_control_plane::Who;
use taints::{Bears, World};

/// For a machine that does other things, too.
const PATIENCE: Duration = Duration::from_secs(25);

/// How long the pod tolerates the taint during which the controllers are restarted.
const ACROSS_A_RESTART: i64 = 12;

/// Asked to end, told once.
const ENDS: &str = "ends in 30s, marked";
/// Its time ran, and it was left.
const CALLED_OFF: &str = "stays, cancelled";
/// Nothing happened to it.
const STAYS: &str = "stays";

/// What the same history comes to on both sides: pod and fate.
const SAME: [(&str, &str); 18] = [
    ("intolerant", ENDS),
    ("tolerant", STAYS),
    ("tolerates-all", STAYS),
    ("another-key", ENDS),
    ("right-value", STAYS),
    ("wrong-value", ENDS),
    ("not-a-moment", ENDS),
    ("two-seconds", ENDS),
    ("five-seconds", ENDS),
    ("long-grace", "ends in 45s, marked"),
    ("pending", ENDS),
    ("of-a-daemon-set", ENDS),
    ("mirror", ENDS),
    ("shortest-of-two", ENDS),
    ("one-of-two", ENDS),
    ("reprieved", CALLED_OFF),
    ("pardoned", CALLED_OFF),
    ("vanished", "gone, cancelled"),
];

/// Pod, the weak spot, kube-controller-manager's side, ours.
const DIFFERENCES: [(&str, &str, &str, &str); 8] = [
    // Five tries within 50 ms.
    ("denied", "W-TE1", "stays, marked", ENDS),
    // A timer that is there stays as it is.
    ("shortened", "TE-3, W-TE4", STAYS, ENDS),
    ("lengthened", "TE-3, W-TE4", ENDS, STAYS),
    ("shorter-by-a-second-taint", "TE-3, W-TE4", STAYS, ENDS),
    ("its-taint-went", "W-TE4", ENDS, STAYS),
    // It does not look at what became of a pod.
    ("completed", "W-TE7", "gone, marked", STAYS),
    ("ending", "W-TE7", ENDS, "ends in 30s without a word"),
    // It cancels the timer before it deletes at once.
    ("cut-short", "TE-2", "ends in 30s, cancelled, marked", ENDS),
];

#[tokio::test]
async fn the_same_taints_end_the_same_pods_but_for_what_is_listed() {
    let (mut kcm, mut ours) = join!(World::of(Who::Kcm), World::of(Who::Ours));
    join!(restarted(&mut kcm), restarted(&mut ours));
    join!(lived(&kcm), lived(&ours));
    let same = SAME.map(|(pod, fate)| (pod, fate, fate));
    let listed: Vec<_> =
        same.into_iter().chain(DIFFERENCES.map(|(pod, _, kcm, ours)| (pod, kcm, ours))).collect();
    let began = Instant::now();
    loop {
        let (theirs, our) = join!(kcm.fates(), ours.fates());
        let wrong: Vec<_> = listed
            .iter()
            .filter(|(pod, kcm, ours)| (&theirs[*pod], &our[*pod]) != (*kcm, *ours))
            .map(|(pod, ..)| format!("{pod}: KCM {:?}, ours {:?}", &theirs[*pod], &our[*pod]))
            .collect();
        if wrong.is_empty() {
            break;
        }
        assert!(began.elapsed() < PATIENCE, "{}", wrong.join("\n"));
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    for world in [&kcm, &ours] {
        let ends = world.moments().await;
        for pair in ["intolerant", "two-seconds", "five-seconds"].windows(2) {
            assert!(ends[pair[0]] < ends[pair[1]], "{:?}: {pair:?}: {ends:?}", world.who);
        }
    }
    conditions_are_alike(&kcm, &ours).await;
    metrics(&kcm, &ours).await;
}

/// W-TE3: a restart in the middle of a toleration begins it anew in kube-controller-manager, and does not here.
async fn restarted(world: &mut World) {
    let bears = Bears("k", "", Some(ACROSS_A_RESTART));
    world.pod("across", "restart", &[bears], |_| ()).await;
    let added = world.taint("across", &[("k", "")]).await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    world.restart().await;
    let up = Timestamp::now().as_second();
    let ends = world.ends("restart", PATIENCE + Duration::from_secs(15)).await;
    let wanted = match world.who {
        // Its caches are there at the latest when it is healthy.
        Who::Kcm => added + 2 + ACROSS_A_RESTART..=up + ACROSS_A_RESTART + 6,
        Who::Ours => added + ACROSS_A_RESTART - 1..=up.max(added + ACROSS_A_RESTART) + 4,
    };
    assert!(wanted.contains(&ends), "{:?}: added at {added}, up at {up}: ended at {ends}", world.who);
    if world.who == Who::Ours {
        assert!(
            ends < added + 2 + ACROSS_A_RESTART || up > added + ACROSS_A_RESTART,
            "nothing was lengthened"
        );
    }
}

/// The history: who is there, what is added, and what changes while times run.
async fn lived(world: &World) {
    let (ever, secs) = (|key| Bears(key, "", None), |key, seconds| Bears(key, "", Some(seconds)));
    let on = async |node: &str, name: &str, tolerations: &[Bears]| {
        world.pod(node, name, tolerations, |_| ()).await;
    };
    on("plain", "intolerant", &[]).await;
    on("plain", "tolerant", &[ever("k")]).await;
    on("plain", "tolerates-all", &[ever("")]).await;
    on("plain", "another-key", &[ever("other")]).await;
    on("plain", "right-value", &[Bears("k", "v", None)]).await;
    on("plain", "wrong-value", &[Bears("k", "w", None)]).await;
    on("plain", "not-a-moment", &[secs("k", 0)]).await;
    on("plain", "two-seconds", &[secs("k", 2)]).await;
    on("plain", "five-seconds", &[secs("k", 5)]).await;
    world.special_pods("plain").await;
    on("two", "shortest-of-two", &[secs("k", 300), secs("l", 2)]).await;
    on("two", "one-of-two", &[ever("k")]).await;
    on("two", "its-taint-went", &[secs("k", 4), secs("l", 300)]).await;
    on("spared", "reprieved", &[secs("k", 300)]).await;
    for (name, seconds) in [("pardoned", 300), ("vanished", 300), ("shortened", 300), ("lengthened", 4)] {
        on("changing", name, &[secs("k", seconds)]).await;
    }
    on("changing", "shorter-by-a-second-taint", &[secs("k", 300), secs("m", 2)]).await;
    on("narrowing", "cut-short", &[secs("k", 300)]).await;
    on("plain", "denied", &[]).await;
    world.deny().await;

    world.taint("plain", &[("k", "v")]).await;
    world.taint("two", &[("k", ""), ("l", "")]).await;
    for node in ["spared", "changing", "narrowing"] {
        world.taint(node, &[("k", "")]).await;
    }
    tokio::time::sleep(Duration::from_millis(1_500)).await;

    world.taint("two", &[("l", "")]).await;
    world.taint("spared", &[]).await;
    world.vanish("vanished").await;
    for (name, bears) in
        [("pardoned", ever("k")), ("shortened", secs("k", 2)), ("lengthened", secs("k", 300))]
    {
        world.tolerate(name, bears).await;
        // The taint to come is not about them.
        world.tolerate(name, ever("m")).await;
    }
    world.also_taint("changing", "m").await;
    world.also_taint("narrowing", "m").await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    world.allow().await;
}

async fn conditions_are_alike(kcm: &World, ours: &World) {
    let (theirs, our) = join!(kcm.conditions(), ours.conditions());
    let but: BTreeMap<_, _> = DIFFERENCES.iter().map(|(pod, why, ..)| (*pod, *why)).collect();
    let names = theirs.keys().chain(our.keys()).filter(|pod| !but.contains_key(pod.as_str()));
    for pod in names {
        assert_eq!(theirs.get(pod), our.get(pod), "{pod}");
    }
    let said = &our["intolerant"];
    for word in ["DeletionByTaintManager", "Taint manager: deleting due to NoExecute taint", "True"] {
        assert!(said.contains(word), "{said}");
    }
    assert_eq!(our["denied"], theirs["denied"], "it was marked by both");
}

/// Both have the same two, and ours says seconds.
async fn metrics(kcm: &World, ours: &World) {
    let (theirs, our) = join!(kcm.metrics(), ours.metrics());
    let deletions = "taint_eviction_controller_pod_deletions_total";
    let durations = "taint_eviction_controller_pod_deletion_duration_seconds";
    let names = |page: &BTreeMap<String, f64>| -> Vec<String> {
        page.keys().filter(|name| name.contains("taint_eviction_controller")).cloned().collect()
    };
    assert_eq!(names(&theirs), names(&our), "the same names and buckets");
    assert!(our[deletions] > 10.0 && theirs[deletions] > 10.0);
    assert_eq!(our[&format!("{durations}_count")], our[deletions]);
    let (sum, late) = (our[&format!("{durations}_sum")], theirs[&format!("{durations}_sum")]);
    assert!((0.0..600.0).contains(&sum), "{sum}s");
    assert!(!(0.0..600.0).contains(&late), "kube-controller-manager's have become seconds: {late}");
}

#[test]
fn every_pod_has_one_fate() {
    let mut names: Vec<_> = SAME.map(|(pod, _)| pod).to_vec();
    names.extend(DIFFERENCES.map(|(pod, ..)| pod));
    let count = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), count);
    assert!(DIFFERENCES.iter().all(|(_, _, kcm, ours)| kcm != ours), "a difference that is none");
}
