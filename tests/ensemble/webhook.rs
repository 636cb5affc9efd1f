//! What a hook posts, as an application in another language verifies it.

use crate::{
    group::started_in_order,
    hook_notes::{Application, Home, header},
    member::Setup,
    servers::Servers,
    wait::eventually,
};
use serde_json::Value;
use std::{fs, process::Command};

#[test]
fn a_post_is_signed_and_tried_again_until_it_is_taken() {
    let servers = Servers::standalone();
    let home = Home::new();
    fs::write(home.path("secret"), "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\n").unwrap();
    let application = Application::answering(&["500 No", "302 Elsewhere", "204 Yes"]);
    let hook = format!(
        "[[hook]]\non = [\"became-leader\"]\nurl = \"http://localhost:{}/led?key=hunter2\"\nsecret_file = {:?}\n",
        application.port,
        home.path("secret"),
    );
    let [member] = started_in_order(&home.with(Setup::of(&servers), &[hook]), ["a"]);
    let heard = application.heard(3);
    eventually("it is done", || {
        let hook = member.status()["hooks"][0].clone();
        let so = hook["runs"] == 1 && hook["last"]["failure"].is_null();
        if so { Ok(()) } else { Err(hook.to_string()) }
    });
    assert_eq!(application.heard(3).len(), 3);
    let (first, body) = &heard[0];
    assert_eq!(first[0], "POST /led?key=hunter2 HTTP/1.1");
    assert_eq!(header(first, "content-type"), "application/json");
    let told: Value = serde_json::from_str(body).unwrap();
    assert_eq!(told["change"], "became-leader");
    for (head, again) in &heard {
        assert_eq!((header(head, "webhook-id"), again), (header(first, "webhook-id"), body));
        let verified = verified_by_python(head, again);
        assert_eq!(header(head, "webhook-signature"), verified);
    }
    assert!(!member.log().contains("hunter2"), "{}", member.log());
    assert!(!member.status().to_string().contains("hunter2"));
}

/// Returns the signature as another implementation of Standard Webhooks computes it.
fn verified_by_python(head: &[String], body: &str) -> String {
    const VERIFY: &str = "
import base64, hashlib, hmac, sys
id, timestamp, body = sys.argv[1:]
key = base64.b64decode('MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw')
digest = hmac.new(key, f'{id}.{timestamp}.{body}'.encode(), hashlib.sha256).digest()
print('v1,' + base64.b64encode(digest).decode(), end='')";
    let mut python = Command::new("python3");
    python.args([
        "-c",
        VERIFY,
        header(head, "webhook-id"),
        header(head, "webhook-timestamp"),
        body,
    ]);
    let output = python.output().expect("python3 is installed");
    String::from_utf8(output.stdout).expect("Base64")
}
