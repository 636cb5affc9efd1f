#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| bellwether::fuzzing::query(data));
