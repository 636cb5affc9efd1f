//! A name server that knows one name.

use std::{
    net::{Ipv4Addr, UdpSocket},
    sync::{Arc, Mutex},
    thread,
};

/// The names that it was asked for, in order.
pub(crate) type Asked = Arc<Mutex<Vec<String>>>;

const HEADER: usize = 12;
/// Type A, class IN.
const ADDRESS: [u8; 4] = [0, 1, 0, 1];

/// Answers on port 53 for as long as the test runs, with this address for this name.
pub(crate) fn serve_names(on: Ipv4Addr, name: &'static str, address: Ipv4Addr) -> Asked {
    let socket = UdpSocket::bind((on, 53)).expect("port 53 is free, and root may have it");
    let asked = Asked::default();
    let log = Arc::clone(&asked);
    thread::spawn(move || {
        let mut message = [0; 512];
        while let Ok((length, from)) = socket.recv_from(&mut message) {
            let Some((question, wanted)) = read(&message[..length]) else { continue };
            log.lock().expect("no thread panics while holding it").push(wanted.clone());
            let known = wanted == name;
            let of_type = known && question.ends_with(&ADDRESS);
            let mut answer = message[..2].to_vec();
            // A response, recursion desired and available; no error, or no such name.
            answer.extend([0x81, if known { 0x80 } else { 0x83 }]);
            answer.extend([0, 1, 0, of_type.into(), 0, 0, 0, 0]);
            answer.extend(question);
            if of_type {
                // The name is the one at the question; it holds for 0 s; the address has 4 bytes.
                answer.extend([0xc0, 0x0c, 0, 1, 0, 1, 0, 0, 0, 0, 0, 4]);
                answer.extend(address.octets());
            }
            let _asker_is_gone = socket.send_to(&answer, from);
        }
    });
    asked
}

/// Returns the question as it is in the message, and the name in it.
fn read(message: &[u8]) -> Option<(&[u8], String)> {
    let mut at = HEADER;
    let mut labels = Vec::new();
    loop {
        let length = usize::from(*message.get(at)?);
        let label = message.get(at + 1..at + 1 + length)?;
        at += 1 + length;
        if length == 0 {
            break;
        }
        labels.push(String::from_utf8_lossy(label).to_lowercase());
    }
    Some((message.get(HEADER..at + ADDRESS.len())?, labels.join(".")))
}
