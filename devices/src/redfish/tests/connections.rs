//! Trust, and connections that break.

use super::*;

fn with(mut order: Order, name: &str, value: Option<&str>) -> Order {
    match value {
        Some(value) => order.parameters.insert(name.to_owned(), Value::Plain(value.to_owned())),
        None => order.parameters.remove(name),
    };
    order
}

fn stranger() -> String {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.self_signed(&key).unwrap().pem()
}

#[tokio::test]
async fn a_certificate_that_is_not_configured_is_not_trusted() {
    let stub = Stub::new(switches("On", "Off")).await;
    let order = with(stub.order(Act::Off), "ca", Some(&stranger()));
    let error = stub.carry_out(&order).await.unwrap_err();
    assert!(matches!(error, DeviceError::Tls { .. }), "{error}");
    assert!(stub.requests.lock().is_empty(), "the login was sent");
    let order = with(with(order, "ca", None), "insecure", Some("true"));
    assert_eq!(stub.carry_out(&order).await.unwrap().power, Power::Off);
}

/// The key of one self-signed service signed certificates for others, as webpki does not check whether a root may
/// sign.
#[tokio::test]
async fn attack_a_certificate_that_is_no_authority_signs_no_other() {
    let own = CertificateParams::new(vec!["bmc-1.example".to_owned()]).unwrap();
    let thief = CertifiedIssuer::self_signed(own, KeyPair::generate().unwrap()).unwrap();
    let stub = Stub::signed_by("127.0.0.1", &thief, switches("On", "Off")).await;
    let error = stub.carry_out(&stub.order(Act::Off)).await.unwrap_err();
    assert!(matches!(error, DeviceError::Tls { .. }), "{error}");
    assert!(stub.requests.lock().is_empty(), "the login was sent");
}

/// One `ca` that listed the certificates of a rack let each service impersonate the others.
#[tokio::test]
async fn attack_several_service_certificates_in_one_ca_are_refused() {
    let service = |name: &str| {
        let params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        params.self_signed(&KeyPair::generate().unwrap()).unwrap().pem()
    };
    let stub = Stub::new(switches("On", "Off")).await;
    let order = |ca: &str| with(stub.order(Act::Look), "ca", Some(ca));
    let rack = stub.certificate.clone() + &service("bmc-2.example");
    let error = stub.carry_out(&order(&rack)).await.unwrap_err();
    assert!(error.to_string().contains("2 certificates in it are no authority"), "{error}");
    let old_and_new = stub.certificate.clone() + &stranger();
    assert_eq!(stub.carry_out(&order(&old_and_new)).await.unwrap().power, Power::On, "one, and an authority");
}

#[tokio::test]
async fn a_configured_certificate_needs_no_name() {
    let stub = Stub::named("bmc.example", switches("On", "On")).await;
    assert_eq!(stub.carry_out(&stub.order(Act::Look)).await.unwrap().power, Power::On);
}

#[tokio::test]
async fn a_signed_certificate_must_name_the_host() {
    let stub = Stub::signed("127.0.0.1", switches("On", "On")).await;
    assert_eq!(stub.carry_out(&stub.order(Act::Look)).await.unwrap().power, Power::On);
    let stub = Stub::signed("bmc.example", switches("On", "On")).await;
    let error = stub.carry_out(&stub.order(Act::Look)).await.unwrap_err();
    assert!(matches!(error, DeviceError::Tls { .. }) && stub.requests.lock().is_empty(), "{error}");
}

#[tokio::test]
async fn a_connection_that_is_closed_after_each_answer_is_reopened() {
    let mut stub = Stub::new(switches("On", "Off")).await;
    stub.closes = true;
    assert_eq!(stub.carry_out(&stub.order(Act::Off)).await.unwrap().power, Power::Off);
    assert_eq!(stub.posts().len(), 1);
}

#[tokio::test]
async fn a_request_that_may_have_been_executed_is_not_sent_twice() {
    let stub =
        Stub::new(|line, _| if line.starts_with("POST") { (0, "", String::new()) } else { ok(&system("On")) }).await;
    let error = stub.carry_out(&stub.order(Act::Off)).await.unwrap_err();
    assert!(matches!(error, DeviceError::Unreachable { .. }), "{error}");
    assert_eq!(stub.posts().len(), 1);
}

#[tokio::test]
async fn a_redirection_to_another_host_is_not_followed() {
    let stub = Stub::new(|_, _| (307, "Location: https://192.0.2.1/redfish/v1/Systems/1\r\n", String::new())).await;
    let error = stub.carry_out(&stub.order(Act::Look)).await.unwrap_err();
    assert!(matches!(&error, DeviceError::Failed { said } if said.contains("192.0.2.1")), "{error}");
}

#[tokio::test]
async fn a_redirection_within_the_service_is_followed() {
    let answers = |line: &str, _: &[String]| match line.strip_suffix("/1") {
        Some(_) => (308, "Location: /redfish/v1/Systems/1/\r\n", String::new()),
        None => ok(&system("On")),
    };
    let stub = Stub::new(answers).await;
    assert_eq!(stub.carry_out(&stub.order(Act::Look)).await.unwrap().power, Power::On);
    let circle = Stub::new(|_, _| (308, "Location: /redfish/v1/Systems/1\r\n", String::new())).await;
    assert!(matches!(circle.carry_out(&circle.order(Act::Look)).await, Err(DeviceError::Failed { .. })));
}

#[tokio::test]
async fn an_answer_that_is_too_long_or_no_json_is_an_error() {
    for text in ["x".repeat(3 << 20), "<html>".to_owned(), String::new(), "[1]".to_owned()] {
        let stub = Stub::new(move |_, _| (200, "", text.clone())).await;
        let error = stub.carry_out(&stub.order(Act::Look)).await.unwrap_err();
        assert!(matches!(error, DeviceError::Garbage { .. }), "{error}");
    }
}

#[tokio::test]
async fn a_service_that_never_answers_times_out() {
    let stub = Stub::new(switches("On", "On")).await;
    let mut order = stub.order(Act::Off);
    order.within = Duration::from_millis(300);
    // Nothing is served: the kernel accepts the connection, and no answer follows.
    let answer = super::super::carry_out(&Env::real(1), &order).await;
    assert_eq!(answer, Err(DeviceError::TimedOut { after: order.within }));
}

/// It always sends something, so no limit on idle time ends it.
#[tokio::test]
async fn a_service_that_sends_single_bytes_times_out() {
    let mut stub = Stub::new(switches("On", "On")).await;
    stub.drips = Some(Duration::from_millis(50));
    let mut order = stub.order(Act::Off);
    order.within = Duration::from_millis(500);
    assert_eq!(stub.carry_out(&order).await, Err(DeviceError::TimedOut { after: order.within }));
    assert!(!stub.requests.lock().is_empty(), "it had begun to answer");
}

#[tokio::test]
async fn a_missing_service_is_unreachable() {
    let stub = Stub::new(switches("On", "On")).await;
    let order = stub.order(Act::Look);
    drop(stub);
    let error = super::super::carry_out(&Env::real(1), &order).await.unwrap_err();
    assert!(matches!(error, DeviceError::Unreachable { .. }), "{error}");
}
