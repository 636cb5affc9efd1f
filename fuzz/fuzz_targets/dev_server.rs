#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| bellwether_dev_server::feed(data));
