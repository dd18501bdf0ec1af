//! What a call costs: `cargo run --release -p cairn-script --example costs`.

#![allow(clippy::unwrap_used)]

use std::time::Instant;

use cairn_script::{Engine, Host, Limits, LogLevel, Script, Stop, Value};

/// Answers every command with the same, so that what is measured is ours.
struct Fixed(Value);

impl Host for Fixed {
    fn call(&mut self, _: &[Vec<u8>]) -> Result<Value, Stop> {
        Ok(self.0.clone())
    }

    fn log(&mut self, _: LogLevel, _: &[u8]) {}

    fn may_run(&mut self, _: &[Vec<u8>]) -> Option<bool> {
        Some(true)
    }

    fn check(&mut self) -> Result<(), Stop> {
        Ok(())
    }
}

fn main() {
    let list = Value::Array(vec![Value::Bulk(b"element".to_vec()); 100]);
    let cases = [
        ("nothing", "return 1", Value::Null),
        (
            "a call",
            "return redis.call('GET', KEYS[1])",
            Value::Bulk(b"value".to_vec()),
        ),
        (
            "a hundred calls",
            "for i = 1, 100 do redis.call('SET', KEYS[1], i) end",
            Value::Simple(b"OK".to_vec()),
        ),
        (
            "a list of a hundred",
            "return redis.call('LRANGE', KEYS[1], 0, -1)",
            list,
        ),
        (
            "a thousand additions",
            "local n = 0 for i = 1, 1000 do n = n + i end return n",
            Value::Null,
        ),
        (
            "cjson",
            "return cjson.encode(cjson.decode('{\"a\": [1, 2, {\"b\": \"text\"}], \"c\": 1.5}'))",
            Value::Null,
        ),
    ];
    let mut engine = Engine::new(Limits::default(), 1).unwrap();
    for (name, script, answer) in cases {
        let script = Script::new(script.as_bytes()).unwrap();
        let mut host = Fixed(answer);
        let mut run = |times: u32| {
            let begun = Instant::now();
            for _ in 0..times {
                engine.eval(&script, &["key"], &["argument"], &mut host);
            }
            begun.elapsed() / times
        };
        run(1000);
        println!("{name:24} {:?}", run(20_000));
    }
}
