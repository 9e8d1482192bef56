use super::*;
use crate::record::Epoch;

const fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn device() -> Device {
    Device {
        class: Class::Hardware,
        identity: "iTCO_wdt".into(),
        firmware: 6,
        kernel: "6.1.0".into(),
        timeout: seconds(10),
        nowayout: true,
        pings_on_close: true,
    }
}

fn terms() -> Terms {
    Terms {
        classes: vec![Class::Hardware, Class::Virtual],
        tick: seconds(1),
        drift_ppm: 10_000,
        reset: seconds(5),
        pause: Duration::ZERO,
        drilled: vec![DrilledDevice::from(&device())],
    }
}

fn boot() -> Boot {
    Boot { node: "7a1c".into(), id: "c3d0".into() }
}

fn grant(version: &str, round: u64) -> ObservedLease {
    let epoch = Epoch { process: 1, count: 0 };
    let (state, device) = (State::Armed, Some(Arc::new(device())));
    ObservedLease { version: version.into(), record: Some(Record { state, epoch, round, boot: boot(), device }) }
}

/// A watch that observed the grant of version 7 at 100 s and revoked it at 110 s, as version 8; and the current
/// Lease.
fn revoked() -> (LeaseWatch, ObservedLease) {
    let mut watch = LeaseWatch::default();
    watch.observe(seconds(100), &grant("7", 3));
    let revocation = watch.plan_revocation().unwrap();
    assert_eq!(&*revocation.version, "7", "over the version that was seen");
    watch.confirm_revocation(seconds(110), &revocation, "8".into());
    (watch, ObservedLease { version: "8".into(), record: Some(revocation.record) })
}

const WAIT: Duration = Duration::from_millis(38_330);

#[test]
fn the_wait_counts_from_the_first_observation() {
    let (mut watch, lease) = revoked();
    let until = seconds(100) + WAIT;
    let early = until.checked_sub(Duration::from_nanos(1)).unwrap();
    assert_eq!(watch.verify_ended(early, &lease, &boot(), &terms()), Err(Refusal::Until(until)));
    assert_eq!(watch.verify_ended(until, &lease, &boot(), &terms()).map(|device| (*device).clone()), Ok(device()));
    // A repeated observation keeps its time.
    watch.observe(seconds(130), &lease);
    assert!(watch.verify_ended(until, &lease, &boot(), &terms()).is_ok());
}

#[test]
fn the_wait_counts_from_the_first_observation_of_the_last_grant() {
    let mut watch = LeaseWatch::default();
    watch.observe(seconds(100), &grant("7", 3));
    watch.observe(seconds(105), &grant("8", 4));
    let revocation = watch.plan_revocation().unwrap();
    watch.confirm_revocation(seconds(110), &revocation, "9".into());
    let lease = ObservedLease { version: "9".into(), record: Some(revocation.record) };
    let until = seconds(105) + WAIT;
    assert_eq!(watch.verify_ended(seconds(110), &lease, &boot(), &terms()), Err(Refusal::Until(until)));
}

#[test]
fn no_end_is_verified_before_the_revocation_was_confirmed() {
    let mut watch = LeaseWatch::default();
    watch.observe(seconds(100), &grant("7", 3));
    let later = seconds(900);
    assert_eq!(watch.verify_ended(later, &grant("7", 3), &boot(), &terms()), Err(Refusal::NotRevoked));
    let revocation = watch.plan_revocation().unwrap();
    watch.confirm_revocation(later, &revocation, "8".into());
    let lease = ObservedLease { version: "8".into(), record: Some(revocation.record) };
    let early = later.checked_sub(seconds(1)).unwrap();
    assert_eq!(watch.verify_ended(early, &lease, &boot(), &terms()), Err(Refusal::Until(later)));
    assert!(watch.verify_ended(later, &lease, &boot(), &terms()).is_ok());
}

#[test]
fn a_lost_answer_keeps_the_wait_and_a_restart_begins_it_again() {
    let (_, lease) = revoked();
    let mut watch = LeaseWatch::default();
    watch.observe(seconds(100), &grant("7", 3));
    watch.observe(seconds(120), &lease);
    assert!(watch.verify_ended(seconds(100) + WAIT, &lease, &boot(), &terms()).is_ok(), "the same grant, revoked");
    let mut restarted = LeaseWatch::default();
    restarted.observe(seconds(120), &lease);
    let until = seconds(120) + WAIT;
    assert_eq!(restarted.verify_ended(seconds(139), &lease, &boot(), &terms()), Err(Refusal::Until(until)));
}

#[test]
fn a_new_grant_after_the_revocation_means_that_the_machine_runs() {
    let (mut watch, lease) = revoked();
    let later = seconds(900);
    assert_eq!(watch.verify_ended(later, &grant("9", 1), &boot(), &terms()), Err(Refusal::Changed));
    watch.observe(later, &grant("9", 1));
    assert_eq!(watch.verify_ended(later, &lease, &boot(), &terms()), Err(Refusal::Changed));
}

/// After a restore of etcd a resourceVersion can be reused, with another content.
#[test]
fn a_reused_resource_version_with_another_content_is_refused() {
    let (watch, lease) = revoked();
    let mut other = lease;
    other.record.as_mut().unwrap().round = 2;
    assert_eq!(watch.verify_ended(seconds(900), &other, &boot(), &terms()), Err(Refusal::Changed));
    let mut watch = LeaseWatch::default();
    watch.observe(seconds(100), &grant("7", 3));
    watch.observe(seconds(200), &grant("7", 9));
    assert_eq!(watch.plan_revocation().unwrap().record.round, 9, "the grant that the Lease has now");
}

#[test]
fn a_promise_is_about_one_boot() {
    let (watch, lease) = revoked();
    for other in [Boot { id: "ffff".into(), ..boot() }, Boot { node: "ffff".into(), ..boot() }] {
        assert_eq!(watch.verify_ended(seconds(900), &lease, &other, &terms()), Err(Refusal::OtherBoot));
    }
}

/// The node writes its Lease. No time in it is read: a clock that is wrong by hours changes nothing.
#[test]
fn attack_no_time_that_a_node_wrote_shortens_the_wait() {
    let mut all = grant("7", 3).record.unwrap().to_annotations();
    all.insert("watchdog.pod-safety.dev/renewed".to_owned(), "1970-01-01T00:00:00Z".to_owned());
    let read = Record::from_annotations(&all).unwrap();
    assert_eq!(Some(&read), grant("7", 3).record.as_ref());
    let mut watch = LeaseWatch::default();
    watch.observe(seconds(100), &ObservedLease { version: "7".into(), record: Some(read) });
    let revocation = watch.plan_revocation().unwrap();
    watch.confirm_revocation(seconds(101), &revocation, "8".into());
    let lease = ObservedLease { version: "8".into(), record: Some(revocation.record) };
    let until = Err(Refusal::Until(seconds(100) + WAIT));
    assert_eq!(watch.verify_ended(seconds(138), &lease, &boot(), &terms()), until);
}

/// A device's own report is accepted only if such a device has reset a machine in a drill.
#[test]
fn attack_a_device_that_lies_is_not_accepted_without_a_drill() {
    let refused = |device: &Device, terms: &Terms| terms.wait_time(device).unwrap_err();
    let short = Device { identity: "fast_wdt".into(), timeout: seconds(1), ..device() };
    let refusal = refused(&short, &terms());
    assert!(
        matches!(refusal, Refusal::NotDrilled(_)) && refusal.to_string().contains("pod-safety drill --watchdog"),
        "{refusal}"
    );
    let updated = Device { kernel: "6.1.1".into(), ..device() };
    assert!(matches!(refused(&updated, &terms()), Refusal::NotDrilled(_)));
    let flashed = Device { firmware: 7, ..device() };
    assert!(matches!(refused(&flashed, &terms()), Refusal::NotDrilled(_)));
    let stoppable = Device { nowayout: false, ..device() };
    assert_eq!(refused(&stoppable, &terms()), Refusal::CanBeStopped);
    let timeless = Device { timeout: Duration::ZERO, ..device() };
    assert_eq!(refused(&timeless, &terms()), Refusal::Timeout(Duration::ZERO));
}

#[test]
fn a_virtual_machine_needs_a_pause_budget_and_a_public_cloud_never_counts() {
    let own = Device { class: Class::Virtual, ..device() };
    assert_eq!(terms().wait_time(&own), Err(Refusal::NoPauseBudget));
    let budget = Terms { pause: seconds(30), ..terms() };
    assert_eq!(budget.wait_time(&own), Ok(WAIT + seconds(30)));
    assert_eq!(budget.wait_time(&device()), Ok(WAIT), "bare metal is not paused");
    let cloud = Device { class: Class::Cloud, ..device() };
    let all = Terms { classes: vec![Class::Cloud], ..budget };
    assert_eq!(all.wait_time(&cloud), Err(Refusal::Class(Class::Cloud)));
    let software = Device { class: Class::Software, ..device() };
    assert_eq!(terms().wait_time(&software), Err(Refusal::Class(Class::Software)), "only if the policy names it");
}

/// A Lease that another client wrote, or a pod with stolen credentials, is no promise.
#[test]
fn attack_a_lease_that_no_agent_wrote_promises_nothing() {
    let (mut watch, _) = revoked();
    let forged = ObservedLease { version: "9".into(), record: None };
    watch.observe(seconds(111), &forged);
    assert_eq!(watch.plan_revocation(), Err(Refusal::NotSeen));
    assert_eq!(watch.verify_ended(seconds(900), &forged, &boot(), &terms()), Err(Refusal::NotSeen));
    for state in [State::Unarmed, State::Disarmed] {
        let mut lease = grant("9", 1);
        lease.record.as_mut().unwrap().state = state;
        watch.observe(seconds(120), &lease);
        assert_eq!(watch.plan_revocation(), Err(Refusal::NotArmed(state)));
        assert_eq!(watch.verify_ended(seconds(900), &lease, &boot(), &terms()), Err(Refusal::NotArmed(state)));
    }
    watch.observe_absent();
    assert_eq!(watch.plan_revocation(), Err(Refusal::NotSeen));
}
