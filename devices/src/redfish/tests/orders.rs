//! Status checks and switches.

use pod_safety_transport::Identity;

use super::*;

const FORCE_OFF: &str = "POST /redfish/v1/Systems/1/Actions/ComputerSystem.Reset {\"ResetType\":\"ForceOff\"}";

#[tokio::test]
async fn a_status_check_reads_power_and_identity_and_writes_nothing() {
    for (state, power) in
        [("On", Power::On), ("Off", Power::Off), ("PoweringOff", Power::Unknown), ("Paused", Power::Unknown)]
    {
        let stub = Stub::new(switches(state, state)).await;
        let answer = stub.carry_out(&stub.order(Act::Look)).await.unwrap();
        assert_eq!((answer.power, answer.identity), (power, Identity::Match));
        assert_eq!(*stub.requests.lock(), [format!("GET {SYSTEM}")]);
    }
    let stub = Stub::new(|_, _| ok(&json!({}))).await;
    let answer = stub.carry_out(&stub.order(Act::Look)).await.unwrap();
    assert_eq!((answer.power, answer.identity), (Power::Unknown, Identity::Unknown));
}

#[tokio::test]
async fn bug_a_list_was_decoded_as_a_machine_that_is_off() {
    let stub = Stub::new(|_, _| ok(&json!([SYSTEM, "#ComputerSystem.v1_20_0.ComputerSystem", "Off", UUID]))).await;
    let error = stub.carry_out(&stub.order(Act::Look)).await.unwrap_err();
    assert!(matches!(&error, DeviceError::Garbage { said } if said.contains("a list")), "{error}");
}

#[tokio::test]
async fn force_off_is_sent_once_and_the_power_is_read_until_off() {
    let stub = Stub::new(switches("On", "Off")).await;
    let answer = stub.carry_out(&stub.order(Act::Off)).await.unwrap();
    assert_eq!(answer.power, Power::Off);
    assert_eq!(stub.posts(), [FORCE_OFF]);
    assert_eq!((stub.requests.lock().len(), *stub.connections.lock()), (3, 1));
}

#[tokio::test]
async fn an_order_on_is_sent_only_to_a_machine_that_is_off() {
    for (state, orders) in [("Off", vec![FORCE_OFF.replace("ForceOff", "On")]), ("On", vec![])] {
        let stub = Stub::new(switches(state, "On")).await;
        assert_eq!(stub.carry_out(&stub.order(Act::On)).await.unwrap().power, Power::On);
        assert_eq!(stub.posts(), orders);
    }
}

#[tokio::test]
async fn a_machine_with_another_identity_gets_no_order() {
    let stub = Stub::new(switches("On", "Off")).await;
    let mut order = stub.order(Act::Off);
    order.machine.system_uuid = UUID.replace("3132", "3133").into();
    let answer = stub.carry_out(&order).await.unwrap();
    assert_eq!(answer.identity, Identity::Mismatch { found: UUID.to_owned() });
    assert_eq!((answer.power, stub.posts().len()), (Power::On, 0));
}

#[tokio::test]
async fn a_machine_without_force_off_gets_no_other_action() {
    let listed = |reset_type: &str| {
        let mut system = system("On");
        system["Actions"]["#ComputerSystem.Reset"]["ResetType@Redfish.AllowableValues"] = json!(["On", reset_type]);
        system
    };
    let stub = Stub::new(move |_, _| ok(&listed("GracefulShutdown"))).await;
    let error = stub.carry_out(&stub.order(Act::Off)).await.unwrap_err();
    assert_eq!(error.to_string(), "the device failed: the system cannot ForceOff; it can On, GracefulShutdown");
    assert!(stub.posts().is_empty());
}

#[tokio::test]
async fn allowed_values_are_read_from_the_action_info() {
    for (reset_type, orders) in [("ForceOff", 1), ("GracefulShutdown", 0)] {
        let stub = Stub::new(move |line, requests| {
            let mut system = system(if requests.iter().any(|line| line.starts_with("POST")) { "Off" } else { "On" });
            let info = format!("{SYSTEM}/ResetActionInfo");
            let target = system["Actions"]["#ComputerSystem.Reset"]["target"].take();
            system["Actions"]["#ComputerSystem.Reset"] = json!({ "target": target, "@Redfish.ActionInfo": info });
            match line {
                line if line.starts_with("POST") => (202, "", String::new()),
                line if line.ends_with("Info") => {
                    ok(&json!({ "Parameters": [{ "Name": "ResetType", "AllowableValues": [reset_type] }] }))
                }
                _ => ok(&system),
            }
        })
        .await;
        let answer = stub.carry_out(&stub.order(Act::Off)).await;
        assert_eq!((answer.is_ok(), stub.posts().len()), (orders == 1, orders), "{answer:?}");
    }
}

#[tokio::test]
async fn a_chassis_is_refused_as_a_system() {
    let stub = Stub::new(|_, _| ok(&json!({ "@odata.type": "#Chassis.v1_0_0.Chassis", "PowerState": "Off" }))).await;
    let error = stub.carry_out(&stub.order(Act::Look)).await.unwrap_err();
    assert!(matches!(&error, DeviceError::Parameter { name, .. } if name == "system"), "{error}");
}

#[tokio::test]
async fn a_refused_login_is_not_repeated() {
    let body = json!({ "error": { "message": "no", "@Message.ExtendedInfo": [{ "Message": "wrong s3cr'et:w" }] } });
    let stub = Stub::new(move |_, _| (401, "", body.to_string())).await;
    let error = stub.carry_out(&stub.order(Act::Off)).await.unwrap_err();
    assert!(matches!(&error, DeviceError::Login { said } if said.contains("no; wrong [secret]")), "{error}");
    assert_eq!(stub.requests.lock().len(), 1);
}

/// Login and logout counted as age of the answer: a controller that does not answer the logout released nothing.
#[tokio::test]
async fn bug_the_end_of_a_session_made_its_answer_old() {
    let stub = Stub::new(|line, _| match line {
        line if line.starts_with("POST") => {
            (201, "X-Auth-Token: abc\r\nLocation: /redfish/v1/SessionService/Sessions/7\r\n", "{}".into())
        }
        line if line.starts_with("DELETE") => (NO_ANSWER, "", String::new()),
        _ => ok(&system("Off")),
    })
    .await;
    let mut order = stub.order(Act::Look);
    order.parameters.insert("auth".to_owned(), Value::Plain("session".to_owned()));
    order.within = Duration::from_secs(8);
    let env = Env::real(1);
    let began = env.now();
    let answer = stub.carry_out(&order).await.unwrap();
    let took = env.now().since(began);
    assert!(answer.power == Power::Off && answer.asked_after > Duration::ZERO, "{answer:?}");
    assert!(took < Duration::from_secs(6), "the end of the session may take a quarter of the timeout: {took:?}");
}

#[tokio::test]
async fn a_session_is_used_and_ended() {
    let session = "/redfish/v1/SessionService/Sessions/7";
    let stub = Stub::new(move |line, _| match line {
        line if line.starts_with("POST") => {
            (201, "X-Auth-Token: abc\r\nLocation: /redfish/v1/SessionService/Sessions/7\r\n", "{}".into())
        }
        line if line.starts_with("DELETE") => (204, "", String::new()),
        _ => ok(&system("On")),
    })
    .await;
    let mut order = stub.order(Act::Look);
    order.parameters.insert("auth".to_owned(), pod_safety_transport::Value::Plain("session".to_owned()));
    stub.carry_out(&order).await.unwrap();
    let requests = stub.requests.lock().clone();
    assert_eq!(requests[1..], [format!("GET {SYSTEM}"), format!("DELETE {session}")]);
    assert_eq!(
        requests[0],
        "POST /redfish/v1/SessionService/Sessions {\"Password\":\"s3cr'et:w\",\"UserName\":\"admin\"}"
    );
    assert!(stub.headers.lock()[1..].iter().all(|head| head.to_lowercase().contains("x-auth-token: abc")));
}
