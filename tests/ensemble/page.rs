//! What people see of an election, in a real browser.

use crate::{
    browser::Browser,
    group::{Named, agreed, agreed_after, started_in_order},
    hook_notes::Home,
    member::{Member, Setup},
    observer::Observer,
    servers::Servers,
    wait::eventually,
};
use serde_json::{Value, json};
use std::{
    fs,
    io::{Read, Write},
    net::{Ipv4Addr, Shutdown, TcpListener, TcpStream},
    sync::{Arc, Mutex},
    thread,
    time::{Duration, SystemTime},
};
use zookeeper::CreateMode;

#[test]
fn browsers_get_the_page_and_programs_what_they_always_got() {
    let servers = Servers::standalone();
    let [member] = started_in_order(&Setup::of(&servers), ["a"]);

    let page = member.get_with("/", ("accept", "text/html,application/xhtml+xml,*/*;q=0.8"));
    assert_eq!((page.status, page.header("vary")), (200, "Accept"));
    assert_eq!(page.header("content-type"), "text/html; charset=utf-8");
    assert!(page.header("content-security-policy").starts_with("default-src 'none'; "));
    assert_eq!(page.header("x-content-type-options"), "nosniff");
    assert_eq!(page.header("referrer-policy"), "no-referrer");
    assert!(page.body.starts_with("<!doctype html>"), "{page:?}");
    for program in ["*/*", "application/json"] {
        let told = member.get_with("/", ("accept", program));
        assert_eq!((told.header("vary"), &told.json()["name"]), ("Accept", &json!("a")));
    }
    assert_eq!(member.get("/").json()["name"], "a");
}

#[test]
fn the_page_shows_each_hand_over_within_a_second_and_without_a_reload() {
    const SOON: i64 = 1000;
    let servers = Servers::standalone();
    let members = started_in_order(&Setup::of(&servers), ["a", "b", "c"]);
    let mut leader = agreed(&members);
    let browser = Browser::start();
    let shown = &members[1];
    let page = Page::open(&browser, shown.port());
    page.says("#who", "a");
    page.says("#claim", "leads, as this member has heard.");
    page.says("#left-means", "Only the leader knows for how long its lease holds: ask it.");
    page.says("#role", "follower");
    page.says("#place", "2 of 3, watches leader_0000000000");
    page.says("#sign", "live");
    page.run(WATCH);
    // An event before that is not for this stream.
    eventually("the stream is open", || match page.run("return own.readyState") {
        state if state == 1 => Ok(()),
        state => Err(state.to_string()),
    });

    let hand_over = |old: &Named| {
        let index = shown.status()["index"].clone();
        let leading = members.iter().find(|member| member.id == old.id).expect("one of them");
        let (id, known_at) = thread::scope(|scope| {
            let asking = scope.spawn(|| next_leader(shown, &old.id, index));
            assert_eq!(leading.post("/resign").status, 202);
            asking.join().expect("it names the next leader")
        });
        let new = agreed_after(old, &members);
        assert_eq!(new.id, id);
        (new, known_at)
    };
    let mut late = vec![];
    for _ in 0..3 {
        let (new, known_at) = hand_over(&leader);
        let old_id = std::mem::replace(&mut leader, new).id;
        let id = &*leader.id;
        page.says("#who", id);
        let [heard_at, shown_at] = ["heardAt", "shownAt"].map(|list| {
            eventually("it happened in the page", || {
                let times = page.run(&format!("return {list}"));
                let last = times.as_array().expect("a list").iter().rfind(|entry| entry[0] == id);
                last.and_then(|entry| entry[1].as_i64()).ok_or_else(|| times.to_string())
            })
        });
        // The queue is as new as the headline, and blames no member for an announcement that is on its way.
        let queue = page.run("return queues.at(-1)");
        assert_ne!(queue["first"], *old_id, "{queue}");
        assert_eq!(queue["blamed"], 0, "{queue}");
        // The same browser received both, however long it had to wait for the machine.
        assert!(shown_at - heard_at <= SOON, "shown {} ms after the event", shown_at - heard_at);
        late.push(shown_at - millis(known_at));
    }
    // What the machine is busy with may keep a browser waiting, but not each time.
    assert!(late.iter().any(|ms| *ms <= SOON), "shown {late:?} ms after another client knew");
    assert_eq!(page.run("return mark"), "not reloaded");

    page.says("#heard", "3 in the queue; the announcement has reached all");
    let ids = |list: &Value, key: &str| -> Vec<Value> {
        list[key].as_array().expect("a list").iter().map(|entry| entry["id"].clone()).collect()
    };
    let listed = shown.get("/members").json();
    assert_eq!(page.texts(".card .id"), ids(&listed, "members"));
    let mut terms = ids(&shown.get("/history").json(), "terms");
    terms.reverse();
    eventually("the terms are shown, the newest first", || {
        let seen = page.texts(".term .id");
        if seen == terms { Ok(()) } else { Err(format!("{seen:?}")) }
    });
    let next = standby_of(&listed);
    page.says("#next", &format!("{next}, ready to lead at once"));
    page.says(".card:has(.next:not([hidden])) .id", next);
    let pause = page.texts("#pause")[0].as_str().expect("text").to_owned();
    let took = pause.contains("s without a known leader, ") || pause.starts_with("at once, ");
    assert!(took && pause.ends_with(" ago"), "{pause}");
    page.kept_to_itself();
    let colours = page.run(COLOURS);
    assert_eq!(colours.as_object().map(|colours| colours.len()), Some(3), "{colours}");
    for member in &members {
        let page = Page::open(&browser, member.port());
        page.says(".term:first-child .id", &leader.id);
        assert_eq!(page.run(COLOURS), colours, "as {} shows it", member.id);
    }

    // The page follows the events: it shows a leader even when none of its requests is answered.
    let page = Page::open(&browser, shown.port());
    page.says("#sign", "live");
    page.run("window.fetch = () => new Promise(() => {})");
    let (leader, _) = hand_over(&leader);
    page.says("#who", &leader.id);
    page.says("#alarm", "Connection to this member lost.");
}

/// Their own hues are 186, 189 and 190 degrees.
#[test]
fn members_of_like_names_have_colours_that_differ() {
    let servers = Servers::standalone();
    let members = started_in_order(&Setup::of(&servers), ["web-be", "web-bb", "web-da"]);
    let mut leader = agreed(&members);
    for _ in 0..2 {
        let leading = members.iter().find(|member| member.id == leader.id).expect("one of them");
        assert_eq!(leading.post("/resign").status, 202);
        leader = agreed_after(&leader, &members);
    }
    let browser = Browser::start();
    let page = Page::open(&browser, members[0].port());
    let hues = "return [...document.querySelectorAll('.term')].map((term) => +term.style.getPropertyValue('--hue'))";
    eventually("each is 40 degrees from the others", || {
        let hues = page.run(hues);
        let degrees = hues.as_array().cloned().unwrap_or_default();
        let degrees: Vec<_> = degrees.iter().filter_map(Value::as_f64).collect();
        let [a, b, c] = degrees[..] else { return Err(hues.to_string()) };
        let apart = |a: f64, b: f64| ((a - b + 540.0).rem_euclid(360.0) - 180.0).abs();
        if [apart(a, b), apart(b, c), apart(a, c)].iter().all(|apart| *apart >= 40.0) {
            Ok(())
        } else {
            Err(hues.to_string())
        }
    });
}

#[test]
fn a_member_that_is_paused_says_so_and_who_led_before() {
    let servers = Servers::standalone();
    let members = started_in_order(&Setup::of(&servers), ["a", "b"]);
    let browser = Browser::start();
    let page = Page::open(&browser, members[1].port());
    page.says("#who", "a");
    assert_eq!(members[1].post("/pause").status, 200);
    page.says("#who", "paused");
    page.says("#claim", "is this member, and does not hear who leads. Before, a led.");
    assert_eq!(members[1].post("/resume").status, 202);
    page.says("#who", "a");
}

/// Where a page is reached at its member's address, and by no tunnel, the leader's is at the same port of its own.
#[test]
fn the_page_of_a_follower_links_to_that_of_the_leader() {
    let servers = Servers::standalone();
    let setup = Setup::of(&servers).option("--address", "127.0.0.3:8080");
    let [leader] = started_in_order(&setup, ["a"]);
    let follower = Setup::of(&servers).listen("127.0.0.2:0").start("b");
    let port = follower.logged_port("listening on 127.0.0.2:");
    let browser = Browser::start();
    let page = Page::at(&browser, format!("http://127.0.0.2:{port}/"));
    page.says("#who", "a");
    let link = "const link = document.querySelector('#ask'); return link.hidden ? '' : link.href";
    eventually("it links to the leader's page", || match page.run(link) {
        href if href == format!("http://127.0.0.3:{port}/") => Ok(()),
        href => Err(href.to_string()),
    });
    let page = Page::open(&browser, leader.port());
    page.says("#claim", "leads. It is this member.");
    assert_eq!(page.run(link), "");
}

#[test]
fn the_page_says_when_it_has_lost_its_member() {
    let servers = Servers::standalone();
    let [mut member] = started_in_order(&Setup::of(&servers), ["a"]);
    let browser = Browser::start();
    let way = Way::to(&member, Duration::ZERO);
    let page = Page::open(&browser, way.port);
    page.says("#who", "a");
    page.says("#claim", "leads. It is this member.");
    page.says("#sign", "live");
    page.run(WATCH);

    let lost = || {
        page.says("#sign", "connection lost");
        page.says("#alarm", "Connection to this member lost.");
        page.says("#who", "a");
        page.says("#claim", "led when this member was last heard.");
        page.says("#left", "–");
        let age = page.run("return document.querySelector('#age').innerText");
        let age = age.as_str().expect("text");
        assert!(age.starts_with("What you see is ") && age.ends_with(" s old."), "{age}");
    };
    let back = || {
        page.says("#sign", "live");
        page.says("#claim", "leads. It is this member.");
        page.says("#alarm", "");
    };
    member.signal("STOP");
    lost();
    member.signal("CONT");
    back();
    // The page says so even if all other requests are answered.
    way.cut_streams();
    lost();
    way.let_streams_through();
    back();
    assert_eq!(page.run("return mark"), "not reloaded");
    member.kill();
    lost();
}

/// However slow the connection, the page never shows more time than the lease has left.
#[test]
fn the_countdown_is_honest() {
    let mut servers = Servers::standalone();
    let [member] = started_in_order(&Setup::of(&servers), ["a"]);
    let browser = Browser::start();
    let way = Way::to(&member, Duration::from_millis(700));
    let page = Page::open(&browser, way.port);
    // The script draws the page anew, as a busy machine may delay the browser's own drawing.
    let counting = "show();
                    const [number, unit] = document.querySelector('#left').innerText.split(' ');
                    return unit === 's' ? [Math.round(number * 1000), Date.now()] : null";
    eventually("it counts", || match page.run(counting) {
        Value::Null => Err("no number".to_owned()),
        _ => Ok(()),
    });

    servers.first().pause();
    eventually("the lease ends, and the page says so", || {
        let claimed = page.run(counting);
        let answer = member.get("/leader").json();
        let now = millis(SystemTime::now());
        // The answer was judged before `now`, so the lease ends no later than this.
        let end = now + answer["valid_for_ms"].as_i64().unwrap_or(0);
        let Some(claimed) = claimed.as_array() else { return Ok(()) };
        let [left, at] = [0, 1].map(|i| claimed[i].as_i64().expect("ms"));
        assert!(at + left <= end, "{left} ms were shown when {} were left", end - at);
        Err(format!("{left} ms left"))
    });
    page.says("#who", "no leader");
    page.says("#claim", "is known to lead.");
    servers.first().resume();
    page.says("#who", "a");
}

#[test]
fn what_others_write_stays_text_and_a_long_queue_is_shown() {
    const MANY: usize = 500;
    let leader = "<img/src=x/onerror=document.title='owned'>";
    let follower = "<script>document.title='owned'</script>";
    let servers = Servers::standalone();
    let observer = Observer::of(&servers);
    let setup = Setup::of(&servers)
        .option("--label", "<b>zone=\"><script>document.title='owned'</script>")
        .option("--label", "\u{202e}turned=line\nbreak");
    let members = started_in_order(&setup, [leader, follower]);
    agreed(&members);
    let deaf = json!({
        "format": 1,
        "id": "</li><iframe/src=//localhost>",
        "address": "javascript:document.title='owned'",
        "labels": {"__proto__": "<svg onload=document.title='owned'>"},
        "leader": {"id": "<i>z</i>", "znode": "leader_0000000000", "token": 1, "labels": {}},
        "version": "<script>document.title='owned'</script>",
    });
    let wide = json!({"format": 1, "id": "W".repeat(253), "labels": {}, "leader": null});
    let unknown_client = json!({"id": ["<script>document.title='owned'</script>"]});
    for data in [&deaf, &wide, &unknown_client] {
        let mode = CreateMode::EphemeralSequential;
        observer.create("/election/leader_", data.to_string().as_bytes(), mode);
    }
    let browser = Browser::start();
    let page = Page::open(&browser, members[1].port());

    page.says("#who", leader);
    page.says("#id", follower);
    page.says("#heard", "5 in the queue; the announcement has reached 2");
    let id = |data: &Value| data["id"].as_str().unwrap().to_owned();
    let ids =
        [leader.to_owned(), follower.to_owned(), id(&deaf), id(&wide), "an unknown client".into()];
    assert_eq!(page.texts(".card .id"), ids.map(Value::from));
    eventually("those that have not heard for a while are pointed out", || {
        let seen = page.texts(".deaf .id");
        if seen == [&deaf, &wide].map(|data| Value::from(id(data))) {
            Ok(())
        } else {
            Err(format!("{seen:?}"))
        }
    });
    let words = [
        "",
        "",
        "has not heard yet, names <i>z</i>",
        "has not heard yet",
        "does not say whom it names",
    ];
    assert_eq!(page.texts(".card .word"), words.map(Value::from));
    let chips = page.texts(".chips li");
    for chip in [
        "<b>zone=\"><script>document.title='owned'</script>",
        "\u{202e}turned=line\nbreak",
        "javascript:document.title='owned'",
        "__proto__=<svg onload=document.title='owned'>",
    ] {
        assert!(chips.contains(&chip.into()), "{chip:?} in {chips:?}");
    }
    let made = "img, iframe, svg[onload], b b, i i, body script ~ script, [onload], [onerror]";
    assert_eq!(page.texts(made), [Value::Null; 0]);
    page.says("title", &format!("{follower} follows · Bellwether"));
    let phone = json!({"width": 360, "height": 740, "deviceScaleFactor": 1, "mobile": true});
    browser.command("Emulation.setDeviceMetricsOverride", phone);
    assert_eq!(page.run("return document.documentElement.scrollWidth"), 360, "fits a phone");

    let screen = json!({"width": 1000, "height": 1080, "deviceScaleFactor": 1, "mobile": false});
    browser.command("Emulation.setDeviceMetricsOverride", screen);
    for _ in 5..24 {
        observer.create("/election/leader_", b"{}", CreateMode::EphemeralSequential);
    }
    page.says("#heard", "24 in the queue; the announcement has reached 2");
    // Names that are longer than the card make some rows of this queue higher.
    let row = "return document.querySelector('.card:last-child').getBoundingClientRect().height";
    let row = page.run(row).as_f64().expect("a number");
    assert!(24. * row < 700., "24 members fit beside the headline: a row takes {row}");
    let open = "return document.querySelectorAll('.card [open]').length";
    assert_eq!(page.run(open), 0);
    page.run("document.querySelector('#all').click()");
    assert_eq!(page.run(open), 24, "labels are shown on demand");

    for _ in 24..MANY {
        observer.create("/election/leader_", b"{}", CreateMode::EphemeralSequential);
    }
    page.says("#heard", &format!("{MANY} in the queue; the announcement has reached 2"));
    assert_eq!(page.texts(".card").len(), MANY);
    let touched = page.run(
        "const seen = new MutationObserver(() => {});
         seen.observe(document.querySelector('#members'), {
             subtree: true, childList: true, attributes: true, characterData: true,
         });
         showQueue();
         return seen.takeRecords().length",
    );
    assert_eq!(touched, 0, "what has not changed is left alone");
    page.kept_to_itself();
}

#[test]
fn the_page_says_what_is_wrong_and_since_when() {
    let mut servers = Servers::standalone();
    let home = tempfile::tempdir().unwrap();
    let (config, well) = (home.path().join("config.toml"), home.path().join("well"));
    fs::write(&config, "[[hook]]\non = [\"became-leader\"]\ncommand = [\"false\"]\n").unwrap();
    fs::write(&well, "").unwrap();
    let setup = Setup::of(&servers)
        .option("--config", config.to_str().unwrap())
        .option("--app-health", &format!("/usr/bin/test -e {}", well.display()))
        .option("--app-health-interval", "50ms")
        .option("--app-health-timeout", "5s")
        .option("--app-health-failures", "1");
    let [member] = started_in_order(&setup, ["a"]);
    let browser = Browser::start();
    let page = Page::open(&browser, member.port());
    // A busy machine may end a term, and another begins.
    let hook = "hook command false: all runs failed, exit code 1";
    let problems = |wanted: &[&str]| {
        eventually(&format!("the page tells {wanted:?}"), || {
            let seen = page.run(PROBLEMS);
            if seen == json!(wanted) { Ok(()) } else { Err(format!("{seen:?}")) }
        });
    };
    let title = |said: &str| page.says("title", &format!("{said} · Bellwether"));
    let icon = |is: &str| {
        let seen = page.run("return decodeURIComponent(document.querySelector('link').href)");
        assert!(seen.as_str().expect("a URL").contains(is), "{seen}");
    };

    problems(&[hook]);
    page.says("#application", "healthy");
    let hooks = page.texts("#hooks span")[0].as_str().expect("text").to_owned();
    assert!(hooks.ends_with(" runs failed, became-leader: exit code 1"), "{hooks}");
    title("! a leads");
    icon("fill='#c08a1e'");
    let since = |nth: usize| {
        let since = page.texts("#problems .since")[nth].as_str().expect("text").to_owned();
        let (since, age) = since.split_once(", for ").expect("a time and an age");
        assert!(since.starts_with("since ") && age.ends_with('s'), "{since} {age}");
        since.to_owned()
    };
    let hook_fails_since = since(0);

    fs::remove_file(&well).unwrap();
    let unhealthy = "the application is not healthy: exit code 1";
    problems(&[unhealthy, hook]);
    page.says("#application", "not healthy: exit code 1");
    assert_eq!(member.post("/pause").status, 200);
    let paused = "paused: out of the queue until `bellwether resume`";
    problems(&[paused, unhealthy, hook]);
    page.says("#server", "not connected");
    title("! a is out");
    icon("fill='none'");

    fs::write(&well, "").unwrap();
    assert_eq!(member.post("/resume").status, 202);
    problems(&[hook]);
    assert_eq!(since(0), hook_fails_since, "it has not succeeded since");
    let session = member.status()["session"].clone();
    page.says("#server", &servers.first().address());
    page.says("#session", &format!("{}, timeout 10 s", session["id"].as_str().unwrap()));
    page.says("#version", env!("CARGO_PKG_VERSION"));

    servers.first().kill();
    page.says("#server", "not connected");
    page.says("#who", "no leader");
    let told = page.run(PROBLEMS);
    let first = told[0].as_str().expect("text");
    assert!(first.contains("ZooKeeper"), "{told:?}");
    assert_eq!(told[1], hook, "{told}");
    since(0);
}

#[test]
fn commands_are_given_with_a_token_that_is_typed_and_not_kept() {
    let servers = Servers::standalone();
    let mut token = tempfile::NamedTempFile::new().unwrap();
    token.write_all(b"hunter2-hunter2").unwrap();
    let setup = Setup::of(&servers).option("--token-file", token.path().to_str().unwrap());
    let members = started_in_order(&setup, ["a", "b"]);
    let leader = agreed(&members).id;
    let follower = members.iter().find(|member| member.id != leader).expect("one of them");
    let browser = Browser::start();
    let page = Page::open(&browser, follower.port());
    page.says("#who", &leader);
    let command = |command: &str, token: &str| {
        let script = "document.querySelector('#token').value = arguments[1];
                      document.querySelector(`[value=${arguments[0]}]`).click();
                      return document.querySelector('#token').value";
        assert_eq!(browser.run(script, json!([command, token])), "", "it is taken away at once");
    };

    command("pause", "");
    page.says(
        "#done",
        "Type the command token first: it is in the file that http.token_file names.",
    );
    command("pause", "hunter3");
    page.says("#done", "Not done: the command token is not the one in http.token_file.");
    page.says("#role", "follower");
    command("resign", "hunter2-hunter2");
    page.says("#done", &format!("Not done: {leader} leads."));
    command("pause", " hunter2-hunter2\n");
    page.says("#done", "Done: paused, not in the queue.");
    page.says(".what", "paused: out of the queue until `bellwether resume`");
    // It does not listen any more: the other one leads on.
    eventually("the term is not said to have ended", || {
        let end = page.texts(".end");
        let is_open = end.len() == 1 && end[0].as_str().unwrap().starts_with("not heard of since ");
        if is_open { Ok(()) } else { Err(format!("{end:?}")) }
    });
    command("resume", "hunter2-hunter2");
    page.says("#role", "follower");
    eventually("the halves of the term are one", || {
        let (ids, end) = (page.texts(".term .id"), page.texts(".end"));
        if (&*ids, &*end) == (&[Value::from(&*leader)], &["".into()]) {
            Ok(())
        } else {
            Err(format!("{ids:?} {end:?}"))
        }
    });
    let kept = "return [document.cookie, localStorage.length, sessionStorage.length]";
    assert_eq!(page.run(kept), json!(["", 0, 0]));
}

/// Draws the README's picture: `cargo test --features all-tests --test ensemble the_picture -- --ignored`.
#[test]
#[ignore = "it writes into docs/"]
fn the_picture_in_the_readme() {
    let servers = Servers::standalone();
    let home = Home::new();
    let fails = "[[hook]]\non = [\"leader-changed\"]\ncommand = [\"false\"]\n";
    let setups = (0..5).map(|n: u8| {
        let zone = format!("zone=eu-{}", n % 3 + 1);
        let setup = Setup::of(&servers)
            .option("--address", &format!("10.0.0.{}:8080", n + 7))
            .option("--label", &zone)
            .option("--label", "release=7.2");
        match n {
            1 => setup.option("--priority", "70"),
            4 => home.with(setup, &[fails.to_owned()]),
            _ => setup,
        }
    });
    let members: Vec<Member> = setups
        .enumerate()
        .map(|(n, setup)| {
            let [member] = started_in_order(&setup, [&*format!("shop-{n}")]);
            member
        })
        .collect();
    agreed(&members);
    let browser = Browser::start();
    let size = json!({"width": 800, "height": 1000, "deviceScaleFactor": 1, "mobile": false});
    browser.command("Emulation.setDeviceMetricsOverride", size);
    let page = Page::open(&browser, members[3].port());

    for (leader, seconds) in members[..3].iter().zip([9, 4, 6]) {
        thread::sleep(Duration::from_secs(seconds));
        // A member that hears nothing, and whose session lasts a while yet.
        if leader.id == "shop-2" {
            members[0].signal("STOP");
        }
        assert_eq!(leader.post("/resign").status, 202);
    }
    page.says("#heard", "5 in the queue; the announcement has reached 4");
    page.says(".deaf .id", "shop-0");
    page.run("document.querySelector('#all').click()");
    page.says(".card:nth-child(4) .chips li:first-child", "priority 70");
    thread::sleep(Duration::from_secs(3));
    fs::write("docs/page.png", browser.screenshot()).expect("the tests run in the repository");
}

/// Draws the page in its states, each on a screen and on a phone, light and dark, into `target/pictures`, and the one
/// that docs/reference/http-api.md shows: `cargo test --features all-tests --test ensemble pictures -- --ignored`.
#[test]
#[ignore = "it writes into docs/"]
fn pictures_of_the_states() {
    let mut servers = Servers::standalone();
    let observer = Observer::of(&servers);
    let home = tempfile::tempdir().unwrap();
    let [config, well, token] = ["config.toml", "well", "token"].map(|name| home.path().join(name));
    let hook = "[[hook]]\non = [\"became-leader\"]\ncommand = [\"false\", \"--switch-over\"]\n";
    for (file, text) in [(&config, hook), (&well, ""), (&token, "secret")] {
        fs::write(file, text).unwrap();
    }
    let others =
        Setup::of(&servers).option("--address", "10.0.0.7:8080").option("--label", "zone=eu-1");
    let setup = others
        .clone()
        .option("--config", config.to_str().unwrap())
        .option("--token-file", token.to_str().unwrap())
        .option("--app-health", &format!("/usr/bin/test -e {}", well.display()))
        .option("--app-health-interval", "50ms")
        .option("--app-health-timeout", "5s");
    let [shown] = started_in_order(&setup, ["shop-0"]);
    let [next, _last] = started_in_order(&others, ["shop-1", "shop-2"]);
    let command =
        |path: &str| shown.send("POST", path, &[("authorization", "Bearer secret")], "").status;
    let browser = Browser::start();
    let page = Page::open(&browser, shown.port());
    let draw = |state: &str| draw(&browser, state);

    fs::remove_file(&well).unwrap();
    page.says("#role", "absent: not in the queue");
    draw("unhealthy");
    fs::write(&well, "").unwrap();
    assert_eq!(command("/pause"), 200);
    page.run("document.querySelector('#commands details').open = true");
    page.says("#role", "absent: not in the queue");
    draw("paused");
    assert_eq!(command("/resume"), 202);

    let page = Page::open(&browser, next.port());
    page.says("#claim", "leads. It is this member.");
    let leader = &next.get("/leader").json()["leader"];
    for n in 3..24 {
        let said = json!({"format": 1, "id": format!("shop-{n}"), "leader": leader,
                          "labels": {"zone": "eu-2"}});
        let mode = CreateMode::EphemeralSequential;
        observer.create("/election/leader_", said.to_string().as_bytes(), mode);
    }
    page.says("#heard", "24 in the queue; the announcement has reached all");
    draw("many");
    servers.first().kill();
    page.says("#who", "no leader");
    draw("no-zookeeper");
    next.signal("STOP");
    page.says("#sign", "connection lost");
    draw("lost");
    next.signal("CONT");
}

/// Draws all of what the browser shows.
fn draw(browser: &Browser, state: &str) {
    fs::create_dir_all("target/pictures").expect("the tests run in the repository");
    for (device, width, mobile) in [("screen", 1000, false), ("phone", 390, true)] {
        for scheme in ["light", "dark"] {
            let size =
                json!({"width": width, "height": 844, "deviceScaleFactor": 1, "mobile": mobile});
            browser.command("Emulation.setDeviceMetricsOverride", size);
            let feature = json!({"name": "prefers-color-scheme", "value": scheme});
            browser.command("Emulation.setEmulatedMedia", json!({"features": [feature]}));
            let picture = format!("target/pictures/{state}-{device}-{scheme}.png");
            fs::write(picture, browser.screenshot()).expect("the tests run in the repository");
        }
    }
}

/// A browser's tab with the page of a member.
struct Page<'a> {
    browser: &'a Browser,
    url: String,
}

/// Notes when the page's leader changes, and when the same browser receives that by a stream of the
/// test's own.
const WATCH: &str = "
    window.mark = 'not reloaded';
    window.shownAt = [];
    window.heardAt = [];
    const who = document.querySelector('#who');
    new MutationObserver(() => shownAt.push([who.textContent, Date.now()]))
        .observe(who, { childList: true, characterData: true, subtree: true });
    window.queues = [];
    new MutationObserver(() => queues.push({
        first: document.querySelector('.card .id')?.textContent,
        blamed: document.querySelectorAll('.deaf').length,
    })).observe(who, { childList: true, characterData: true, subtree: true });
    window.own = new EventSource('events');
    for (const name of ['became-leader', 'lost-leadership', 'leader-changed', 'leader-lost']) {
        own.addEventListener(name, ({ data }) => heardAt.push([JSON.parse(data).leader?.id, Date.now()]));
    }";

/// What is wrong, without the number of runs.
const PROBLEMS: &str = "
    return [...document.querySelectorAll('.what')]
        .map((what) => what.textContent.replace(/(\\d+) of \\1 runs/, 'all runs'));";

/// The colour of each member in the list of terms.
const COLOURS: &str = "
    const terms = [...document.querySelectorAll('.term')];
    return Object.fromEntries(terms.map((term) =>
        [term.querySelector('.id').textContent, getComputedStyle(term, '::before').backgroundColor]));";

impl<'a> Page<'a> {
    fn open(browser: &'a Browser, port: u16) -> Self {
        Self::at(browser, format!("http://127.0.0.1:{port}/"))
    }

    fn at(browser: &'a Browser, url: String) -> Self {
        browser.open(&url);
        Self { browser, url }
    }

    fn run(&self, script: &str) -> Value {
        self.browser.run(script, json!([]))
    }

    fn texts(&self, selector: &str) -> Vec<Value> {
        let script =
            "return [...document.querySelectorAll(arguments[0])].map((e) => e.textContent)";
        match self.browser.run(script, json!([selector])) {
            Value::Array(texts) => texts,
            other => panic!("{other}"),
        }
    }

    #[track_caller]
    fn says(&self, selector: &str, text: &str) {
        eventually(&format!("{selector} says {text:?}"), || {
            let seen = self.texts(selector);
            if seen == [text] { Ok(()) } else { Err(format!("{seen:?}")) }
        });
    }

    /// Checks that the page asked its member only, and that its policy had nothing to forbid.
    #[track_caller]
    fn kept_to_itself(&self) {
        assert_eq!(self.browser.console(), [""; 0]);
        let known = ["", "events", "status", "members", "history"];
        for url in self.browser.requests() {
            let path = url.strip_prefix(&self.url);
            let own = path.is_some_and(|path| known.contains(&path));
            assert!(own || url.starts_with("data:"), "{url}");
        }
    }
}

/// Returns the id of the member that `/members` calls the standby.
fn standby_of(listed: &Value) -> &str {
    let members = listed["members"].as_array().expect("a list");
    let standby = members.iter().find(|member| !member["standby"].is_null()).expect("a standby");
    standby["id"].as_str().expect("an id")
}

/// Asks a member until it names another leader, and tells when that was.
fn next_leader(member: &Member, old: &str, mut index: Value) -> (String, SystemTime) {
    loop {
        let answer = member.get(&format!("/leader?index={index}&wait=8s"));
        let now = SystemTime::now();
        index = answer.header("x-bellwether-index").parse().expect("a number");
        match answer.json()["leader"]["id"].as_str() {
            Some(id) if id != old => return (id.to_owned(), now),
            Some(_) | None => {}
        }
    }
}

fn millis(at: SystemTime) -> i64 {
    let since = at.duration_since(SystemTime::UNIX_EPOCH).expect("after 1970");
    i64::try_from(since.as_millis()).expect("in our age")
}

/// A forwarder between browser and member, which delays answers and can cut streams.
struct Way {
    port: u16,
    /// The open streams of events; `None` while no stream is let through.
    events: Arc<Mutex<Option<Vec<TcpStream>>>>,
}

impl Way {
    /// Forwards to this member, and delays what comes back.
    fn to(member: &Member, delay: Duration) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let port = listener.local_addr().expect("a bound address").port();
        let events = Arc::new(Mutex::new(Some(vec![])));
        let (list, target) = (Arc::clone(&events), member.port());
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                // The member may be gone: then so is the client.
                let Ok(server) = TcpStream::connect((Ipv4Addr::LOCALHOST, target)) else {
                    continue;
                };
                let again = |end: &TcpStream| end.try_clone().expect("a file");
                let (client_too, server_too) = (again(&client), again(&server));
                let list = Arc::clone(&list);
                thread::spawn(move || {
                    forward(&client_too, &server_too, Duration::ZERO, |request| {
                        let is_stream = request.starts_with(b"GET /events ");
                        let mut list = list.lock().expect("no thread panics with it");
                        match &mut *list {
                            Some(streams) if is_stream => streams.push(again(&client_too)),
                            Some(_) => {}
                            None => return !is_stream,
                        }
                        true
                    });
                });
                thread::spawn(move || forward(&server, &client, delay, |_| true));
            }
        });
        Self { port, events }
    }

    /// Ends the streams of events and lets no other through. All else goes on.
    fn cut_streams(&self) {
        let streams = self.events.lock().expect("no thread panics with it").take();
        for stream in streams.expect("they were not cut before") {
            // It may have ended by itself.
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    fn let_streams_through(&self) {
        *self.events.lock().expect("no thread panics with it") = Some(vec![]);
    }
}

/// Forwards until either end is gone, or what is sent may not pass.
fn forward(
    mut from: &TcpStream,
    mut to: &TcpStream,
    delay: Duration,
    mut may_pass: impl FnMut(&[u8]) -> bool,
) {
    let mut chunk = [0; 64 * 1024];
    while let Ok(length @ 1..) = from.read(&mut chunk) {
        thread::sleep(delay);
        if !may_pass(&chunk[..length]) || to.write_all(&chunk[..length]).is_err() {
            break;
        }
    }
    for end in [from, to] {
        // It may have ended by itself.
        let _ = end.shutdown(Shutdown::Both);
    }
}
