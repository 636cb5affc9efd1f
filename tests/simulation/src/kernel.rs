//! The kernel as simulated daemons see it: clocks, randomness, timers, and connections to servers.
//!
//! The program's own binary defines the functions of libc through which std, tokio, mio, rustix and the client library ask the
//! kernel, so that the linker takes these instead. Nothing in the daemon, its runtime or its libraries is changed or knows of it.
//! A thread is simulated between [`begin`] and the end of the process; any other has the real clock and no network.
//!
//! - `clock_gettime` returns the clock of the daemon that is being stepped, which stands still during a step.
//! - `getrandom` returns the bytes of a generator that a seed determines.
//! - `timerfd_create` makes an eventfd, to which the simulator writes when the timer is due.
//! - `connect` makes a pair of sockets, of which the simulator has the other end. The connection is registered with epoll when
//!   the simulator establishes it.
//! - `epoll_wait` does not wait. It tells the simulator for how long the daemon would have, and ends the step.
//! - `pthread_create` counts the threads of the blocking pool, for which the end of a step waits.

#![expect(unsafe_code, reason = "functions of libc are replaced, and called")]

use libc::{c_int, c_void, clockid_t, epoll_event, itimerspec, sockaddr, socklen_t, timespec};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::env;
use std::ffi::CStr;
use std::future::poll_fn;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};
use std::task::{Poll, Waker};
use std::time::Duration;

/// The date at which each simulation begins, in nanoseconds since 1970.
pub const EPOCH_NS: u64 = 1_800_000_000_000_000_000;

/// A step that turns the runtime so often does not end: its tasks wake each other.
const TURNS_MAX: u32 = 50_000;

/// Whether this process runs a simulation: no thread of it reaches a real server, or gets real randomness.
static IN_USE: AtomicBool = AtomicBool::new(false);

/// The threads of blocking pools that have not ended.
static THREADS: AtomicUsize = AtomicUsize::new(0);

/// Whether they may run: only while the simulation's thread waits for them, so that nothing depends on who is faster.
static THREADS_RUN: AtomicBool = AtomicBool::new(false);

thread_local! {
    static SIMULATED: Cell<bool> = const { Cell::new(false) };
    /// The clock of the daemon that is being stepped, in nanoseconds since its boot.
    static CLOCK: Cell<u64> = const { Cell::new(0) };
    static RANDOM: Cell<u64> = const { Cell::new(0x5eed) };
    static STEP: RefCell<Step> = const { RefCell::new(Step { waker: None, wait: None, turns: 0 }) };
    static KERNEL: RefCell<Kernel> = const { RefCell::new(Kernel::new()) };
}

/// The step under way.
struct Step {
    /// Wakes the future that ends the step.
    waker: Option<Waker>,
    wait: Option<Wait>,
    turns: u32,
}

/// How long a daemon waits when it has nothing to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    Forever,
    For(Duration),
}

/// The files that are not the real kernel's.
struct Kernel {
    /// The owner of the files that are opened now.
    owner: usize,
    connections: u64,
    timers: BTreeMap<RawFd, Timer>,
    /// Connections that the simulator has not taken over yet.
    new: Vec<Connecting>,
    /// Connections that are neither established nor refused.
    connecting: BTreeMap<RawFd, Pending>,
    /// The errors of connections that were refused.
    errors: BTreeMap<RawFd, c_int>,
}

struct Timer {
    owner: usize,
    rings: OwnedFd,
    at_ns: Option<u64>,
}

/// A connection that a daemon asks for.
pub struct Connecting {
    pub id: u64,
    pub to: SocketAddr,
    /// The other end.
    pub peer: OwnedFd,
}

struct Pending {
    id: u64,
    registered: Option<(c_int, epoll_event)>,
}

impl Kernel {
    const fn new() -> Self {
        Self {
            owner: 0,
            connections: 0,
            timers: BTreeMap::new(),
            new: Vec::new(),
            connecting: BTreeMap::new(),
            errors: BTreeMap::new(),
        }
    }
}

/// Begins to simulate this thread, with randomness of this seed.
pub fn begin(seed: u64) {
    IN_USE.store(true, Ordering::SeqCst);
    RANDOM.set(seed);
    SIMULATED.set(true);
    fastrand::seed(seed);
}

/// Runs this program again, unless it runs so already, without randomness in its addresses, on which some hash maps of libraries
/// depend.
pub fn fix_addresses() {
    const ASK: libc::c_ulong = 0xffff_ffff;
    // SAFETY: it concerns this process alone.
    let now = unsafe { libc::personality(ASK) };
    if now & libc::ADDR_NO_RANDOMIZE != 0 {
        return;
    }
    // SAFETY: as above.
    let is_set =
        unsafe { libc::personality((now | libc::ADDR_NO_RANDOMIZE) as libc::c_ulong) } >= 0;
    if is_set {
        let program = env::current_exe().expect("a process knows its program");
        let error = Command::new(program).args(env::args_os().skip(1)).exec();
        panic!("the program cannot be run again: {error}");
    }
}

/// Sets the clock that this thread reads, in nanoseconds since boot.
pub fn set_clock(ns: u64) {
    CLOCK.set(ns);
}

/// Returns the clock of the daemon that is being stepped.
pub fn clock() -> u64 {
    CLOCK.get()
}

/// Returns whether this is the thread of the simulation.
pub fn is_simulated() -> bool {
    SIMULATED.get()
}

/// Sets the owner of the files that are opened from now on.
pub fn set_owner(owner: usize) {
    KERNEL.with_borrow_mut(|kernel| kernel.owner = owner);
}

/// Completes when all tasks of the runtime wait. Returns for how long they would, if nothing happens.
pub async fn idle() -> Wait {
    STEP.with_borrow_mut(|step| *step = Step { waker: None, wait: None, turns: 0 });
    poll_fn(|context| {
        STEP.with_borrow_mut(|step| match step.wait.take() {
            Some(wait) => Poll::Ready(wait),
            None => {
                step.waker = Some(context.waker().clone());
                Poll::Pending
            }
        })
    })
    .await
}

/// Rings the timers of this owner that are due, and returns when the next one is.
pub fn ring_timers(owner: usize) -> Option<u64> {
    let now = clock();
    KERNEL.with_borrow_mut(|kernel| {
        let own = kernel.timers.values_mut().filter(|timer| timer.owner == owner);
        let mut next = None;
        for timer in own {
            match timer.at_ns {
                Some(at) if at <= now => {
                    timer.at_ns = None;
                    let one: u64 = 1;
                    // SAFETY: the file is open, and the value is on the stack.
                    unsafe { libc::write(timer.rings.as_raw_fd(), (&raw const one).cast(), 8) };
                }
                Some(at) => next = Some(next.map_or(at, |next: u64| next.min(at))),
                None => {}
            }
        }
        next
    })
}

/// Forgets the files of a daemon that has ended.
pub fn forget(owner: usize) {
    KERNEL.with_borrow_mut(|kernel| kernel.timers.retain(|_, timer| timer.owner != owner));
}

/// Takes the connections that daemons have asked for since the last call.
pub fn take_connecting() -> Vec<Connecting> {
    KERNEL.with_borrow_mut(|kernel| std::mem::take(&mut kernel.new))
}

/// Lets the daemon see that a connection is established.
pub fn establish(id: u64) {
    end_connecting(id, None);
}

/// Lets the daemon see that a connection was refused.
pub fn refuse(id: u64, error: c_int) {
    end_connecting(id, Some(error));
}

fn end_connecting(id: u64, error: Option<c_int>) {
    let registered = KERNEL.with_borrow_mut(|kernel| {
        let file = *kernel.connecting.iter().find(|(_, pending)| pending.id == id)?.0;
        let pending = kernel.connecting.remove(&file)?;
        if let Some(error) = error {
            kernel.errors.insert(file, error);
        }
        pending.registered.map(|(epoll, event)| (epoll, file, event))
    });
    if let Some((epoll, file, mut event)) = registered {
        // SAFETY: the event is on the stack. A file that was closed is an error, which means nothing here.
        unsafe {
            libc::syscall(libc::SYS_epoll_ctl, epoll, libc::EPOLL_CTL_ADD, file, &raw mut event)
        };
    }
}

/// Has a thread of a blocking pool wait for its turn.
pub fn thread_begins() {
    while !THREADS_RUN.load(Ordering::SeqCst) {
        std::thread::yield_now();
    }
}

/// Notes that a thread of a blocking pool is about to end.
pub fn thread_ends() {
    THREADS.fetch_sub(1, Ordering::SeqCst);
}

fn set_errno(error: c_int) -> c_int {
    // SAFETY: each thread has its own.
    unsafe { *libc::__errno_location() = error };
    -1
}

/// Returns the next function of this name, which the C library has.
fn next_function(name: &CStr) -> *mut c_void {
    // SAFETY: the name ends with a zero.
    let found = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) };
    assert!(!found.is_null(), "the C library has {name:?}");
    found
}

/// # Safety
/// As for the function of the C library.
#[unsafe(no_mangle)]
unsafe extern "C" fn clock_gettime(clock: clockid_t, time: *mut timespec) -> c_int {
    if !SIMULATED.get() {
        // SAFETY: as the caller promises.
        return unsafe { libc::syscall(libc::SYS_clock_gettime, clock, time) } as c_int;
    }
    let ns = match clock {
        libc::CLOCK_REALTIME | libc::CLOCK_REALTIME_COARSE => EPOCH_NS + CLOCK.get(),
        _ => CLOCK.get(),
    };
    let read = timespec {
        tv_sec: (ns / 1_000_000_000) as libc::time_t,
        tv_nsec: (ns % 1_000_000_000) as libc::c_long,
    };
    // SAFETY: the caller gives a place for it.
    unsafe { time.write(read) };
    0
}

/// # Safety
/// As for the function of the C library.
#[unsafe(no_mangle)]
unsafe extern "C" fn getrandom(buffer: *mut c_void, length: usize, flags: libc::c_uint) -> isize {
    if !IN_USE.load(Ordering::SeqCst) {
        // SAFETY: as the caller promises.
        return unsafe { libc::syscall(libc::SYS_getrandom, buffer, length, flags) } as isize;
    }
    for at in 0..length {
        let state = RANDOM.get().wrapping_add(0x9E37_79B9_7F4A_7C15);
        RANDOM.set(state);
        let mixed = (state ^ (state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        // SAFETY: the caller gives a buffer of this length.
        unsafe { buffer.cast::<u8>().add(at).write((mixed >> 24) as u8) };
    }
    length as isize
}

/// # Safety
/// As for the function of the C library.
#[unsafe(no_mangle)]
unsafe extern "C" fn epoll_wait(
    epoll: c_int,
    events: *mut epoll_event,
    room: c_int,
    timeout_ms: c_int,
) -> c_int {
    if !SIMULATED.get() {
        // SAFETY: as the caller promises.
        return unsafe { wait_for_files(epoll, events, room, timeout_ms) };
    }
    // SAFETY: as the caller promises.
    let mut found = unsafe { wait_for_files(epoll, events, room, 0) };
    if found == 0 && timeout_ms != 0 && THREADS.load(Ordering::SeqCst) > 0 {
        // What the blocking pool does ends within the step that began it.
        THREADS_RUN.store(true, Ordering::SeqCst);
        while THREADS.load(Ordering::SeqCst) > 0 || are_threads_left() {
            std::thread::yield_now();
        }
        THREADS_RUN.store(false, Ordering::SeqCst);
        // SAFETY: as the caller promises.
        found = unsafe { wait_for_files(epoll, events, room, 0) };
    }
    let waker = STEP.with_borrow_mut(|step| {
        step.turns += 1;
        assert!(step.turns < TURNS_MAX, "a step does not end: tasks wake each other");
        if found != 0 || timeout_ms == 0 {
            return None;
        }
        step.wait = Some(match u64::try_from(timeout_ms) {
            Ok(timeout_ms) => Wait::For(Duration::from_millis(timeout_ms)),
            Err(_) => Wait::Forever,
        });
        step.waker.take()
    });
    if let Some(waker) = waker {
        waker.wake();
    }
    found
}

/// Returns whether there are other threads: also one that ends gives memory back, in which the next step's may come to be.
fn are_threads_left() -> bool {
    // SAFETY: all that is written is on the stack.
    unsafe {
        let mut found: libc::stat = std::mem::zeroed();
        assert_eq!(libc::stat(c"/proc/self/task".as_ptr(), &raw mut found), 0);
        // A directory for each, and its own two names.
        found.st_nlink > 3
    }
}

/// # Safety
/// As for `epoll_wait`.
unsafe fn wait_for_files(
    epoll: c_int,
    events: *mut epoll_event,
    room: c_int,
    timeout_ms: c_int,
) -> c_int {
    let none: *const c_void = std::ptr::null();
    // SAFETY: as the caller promises.
    unsafe {
        libc::syscall(libc::SYS_epoll_pwait, epoll, events, room, timeout_ms, none, 8_usize)
            as c_int
    }
}

/// # Safety
/// As for the function of the C library.
#[unsafe(no_mangle)]
unsafe extern "C" fn epoll_ctl(
    epoll: c_int,
    operation: c_int,
    file: c_int,
    event: *mut epoll_event,
) -> c_int {
    if SIMULATED.get() {
        let is_pending = KERNEL.with_borrow_mut(|kernel| match operation {
            libc::EPOLL_CTL_DEL => kernel.connecting.remove(&file).is_some(),
            _ => match kernel.connecting.get_mut(&file) {
                Some(pending) => {
                    // SAFETY: the caller gives an event with all operations but DEL.
                    pending.registered = Some((epoll, unsafe { event.read() }));
                    true
                }
                None => false,
            },
        });
        if is_pending {
            return 0;
        }
    }
    // SAFETY: as the caller promises.
    unsafe { libc::syscall(libc::SYS_epoll_ctl, epoll, operation, file, event) as c_int }
}

/// # Safety
/// As for the function of the C library.
#[unsafe(no_mangle)]
unsafe extern "C" fn timerfd_create(clock: clockid_t, flags: c_int) -> c_int {
    if !SIMULATED.get() {
        // SAFETY: as the caller promises.
        return unsafe { libc::syscall(libc::SYS_timerfd_create, clock, flags) } as c_int;
    }
    // SAFETY: both calls make files, of which this has the only copy.
    let file = unsafe { libc::eventfd(0, libc::EFD_NONBLOCK | libc::EFD_CLOEXEC) };
    let rings = unsafe { libc::fcntl(file, libc::F_DUPFD_CLOEXEC, 0) };
    assert!(file >= 0 && rings >= 0, "two more files can be opened");
    let rings = unsafe { OwnedFd::from_raw_fd(rings) };
    KERNEL.with_borrow_mut(|kernel| {
        let owner = kernel.owner;
        kernel.timers.insert(file, Timer { owner, rings, at_ns: None });
    });
    file
}

/// # Safety
/// As for the function of the C library.
#[unsafe(no_mangle)]
unsafe extern "C" fn timerfd_settime(
    file: c_int,
    flags: c_int,
    new: *const itimerspec,
    old: *mut itimerspec,
) -> c_int {
    if !SIMULATED.get() {
        // SAFETY: as the caller promises.
        return unsafe { libc::syscall(libc::SYS_timerfd_settime, file, flags, new, old) } as c_int;
    }
    // SAFETY: the caller gives the time at which it is to ring.
    let at = unsafe { (*new).it_value };
    let at_ns = at.tv_sec as u64 * 1_000_000_000 + at.tv_nsec as u64;
    let mut count: u64 = 0;
    // SAFETY: the count is on the stack. What it has rung before is forgotten.
    unsafe { libc::read(file, (&raw mut count).cast(), 8) };
    KERNEL.with_borrow_mut(|kernel| {
        let timer = kernel.timers.get_mut(&file).expect("it was made by timerfd_create");
        timer.at_ns = (at_ns != 0).then_some(at_ns);
    });
    if !old.is_null() {
        // SAFETY: the caller gives a place for it.
        unsafe { old.write(std::mem::zeroed()) };
    }
    0
}

/// # Safety
/// As for the function of the C library.
#[unsafe(no_mangle)]
unsafe extern "C" fn connect(file: c_int, address: *const sockaddr, length: socklen_t) -> c_int {
    // SAFETY: the caller gives an address.
    let family = unsafe { (*address).sa_family };
    if !IN_USE.load(Ordering::SeqCst) || c_int::from(family) != libc::AF_INET {
        // SAFETY: as the caller promises.
        return unsafe { libc::syscall(libc::SYS_connect, file, address, length) } as c_int;
    }
    if !SIMULATED.get() {
        return set_errno(libc::ECONNREFUSED);
    }
    // SAFETY: of this family, it is this.
    let address = unsafe { address.cast::<libc::sockaddr_in>().read_unaligned() };
    let ip = Ipv4Addr::from(u32::from_be(address.sin_addr.s_addr));
    let to = SocketAddr::V4(SocketAddrV4::new(ip, u16::from_be(address.sin_port)));
    let mut pair = [0; 2];
    let kind = libc::SOCK_STREAM | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
    // SAFETY: there is room for two files, and this has the only copies of them.
    let peer = unsafe {
        assert_eq!(libc::socketpair(libc::AF_UNIX, kind, 0, pair.as_mut_ptr()), 0);
        libc::dup3(pair[0], file, libc::O_CLOEXEC);
        libc::close(pair[0]);
        OwnedFd::from_raw_fd(pair[1])
    };
    KERNEL.with_borrow_mut(|kernel| {
        kernel.connections += 1;
        let id = kernel.connections;
        kernel.errors.remove(&file);
        kernel.connecting.insert(file, Pending { id, registered: None });
        kernel.new.push(Connecting { id, to, peer });
    });
    set_errno(libc::EINPROGRESS)
}

/// # Safety
/// As for the function of the C library.
#[unsafe(no_mangle)]
unsafe extern "C" fn getsockopt(
    file: c_int,
    level: c_int,
    name: c_int,
    value: *mut c_void,
    length: *mut socklen_t,
) -> c_int {
    if SIMULATED.get() && level == libc::SOL_SOCKET && name == libc::SO_ERROR {
        let error = KERNEL.with_borrow_mut(|kernel| kernel.errors.remove(&file)).unwrap_or(0);
        // SAFETY: the caller gives a place for an int.
        unsafe { value.cast::<c_int>().write(error) };
        return 0;
    }
    // SAFETY: as the caller promises.
    unsafe { libc::syscall(libc::SYS_getsockopt, file, level, name, value, length) as c_int }
}

/// # Safety
/// As for the function of the C library.
#[unsafe(no_mangle)]
unsafe extern "C" fn setsockopt(
    file: c_int,
    level: c_int,
    name: c_int,
    value: *const c_void,
    length: socklen_t,
) -> c_int {
    // Pairs of sockets have no such options.
    if SIMULATED.get() && level == libc::IPPROTO_TCP {
        return 0;
    }
    // SAFETY: as the caller promises.
    unsafe { libc::syscall(libc::SYS_setsockopt, file, level, name, value, length) as c_int }
}

/// The crate getrandom asks the kernel by this, and some hash maps of libraries by that crate.
///
/// # Safety
/// As for the function of the C library. All that it may be given is passed in registers.
#[unsafe(no_mangle)]
unsafe extern "C" fn syscall(
    number: libc::c_long,
    first: usize,
    second: usize,
    third: usize,
    fourth: usize,
    fifth: usize,
    sixth: usize,
) -> libc::c_long {
    type Call = unsafe extern "C" fn(
        libc::c_long,
        usize,
        usize,
        usize,
        usize,
        usize,
        usize,
    ) -> libc::c_long;
    static NEXT: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());
    if number == libc::SYS_getrandom && IN_USE.load(Ordering::SeqCst) {
        // SAFETY: as the caller promises.
        return unsafe { getrandom(first as *mut c_void, second, third as libc::c_uint) }
            as libc::c_long;
    }
    let mut next = NEXT.load(Ordering::Relaxed);
    if next.is_null() {
        next = next_function(c"syscall");
        NEXT.store(next, Ordering::Relaxed);
    }
    // SAFETY: the C library's function of this name takes these, and the caller's promise holds.
    unsafe {
        let call: Call = std::mem::transmute(next);
        call(number, first, second, third, fourth, fifth, sixth)
    }
}

type Start = extern "C" fn(*mut c_void) -> *mut c_void;

/// # Safety
/// As for the function of the C library.
#[unsafe(no_mangle)]
unsafe extern "C" fn pthread_create(
    thread: *mut libc::pthread_t,
    attributes: *const libc::pthread_attr_t,
    start: Start,
    argument: *mut c_void,
) -> c_int {
    type Create = unsafe extern "C" fn(
        *mut libc::pthread_t,
        *const libc::pthread_attr_t,
        Start,
        *mut c_void,
    ) -> c_int;
    // SAFETY: the C library's function of this name is of this type.
    let create: Create = unsafe { std::mem::transmute(next_function(c"pthread_create")) };
    if SIMULATED.get() {
        THREADS.fetch_add(1, Ordering::SeqCst);
    }
    // SAFETY: as the caller promises.
    unsafe { create(thread, attributes, start, argument) }
}
