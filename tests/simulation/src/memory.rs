//! Memory whose addresses depend on nothing but what the simulation does.
//!
//! The client library's `select!` begins with the branch that the address of its future picks. The C library's memory is shared with
//! the threads of blocking pools, so that addresses would differ from run to run.

#![expect(unsafe_code, reason = "an allocator hands out raw memory")]

use crate::kernel;
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::ptr;

/// Takes the memory of the simulation's thread from a place of its own.
pub struct Memory;

/// The place, in the middle of a process's addresses.
const START: usize = 0x1000_0000_0000;
const SIZE: usize = 1 << 36;

/// Blocks are multiples of this, up to `FINE` bytes, and powers of two above.
const GRAIN: usize = 16;
const FINE: usize = 1024;
const CLASSES: usize = FINE / GRAIN + 1 + usize::BITS as usize;

thread_local! {
    /// The first free block of each size. Each has the address of the next.
    static FREE: [Cell<usize>; CLASSES] = const { [const { Cell::new(0) }; CLASSES] };
    /// The end of what was ever handed out; 0 before the first.
    static END: Cell<usize> = const { Cell::new(0) };
    /// How much of it is handed out.
    static IN_USE: Cell<usize> = const { Cell::new(0) };
}

/// Returns how many bytes of the simulation's memory are in use.
pub fn in_use() -> usize {
    IN_USE.get()
}

// SAFETY: a block is handed out once until it is freed, is as large as its class, and is aligned as it asks.
unsafe impl GlobalAlloc for Memory {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if !kernel::is_simulated() {
            // SAFETY: as the caller promises.
            return unsafe { System.alloc(layout) };
        }
        let (class, size) = class(layout);
        IN_USE.set(IN_USE.get() + size);
        FREE.with(|free| {
            let block = free[class].get();
            if block == 0 {
                return new_block(size, layout.align());
            }
            // SAFETY: a free block has the address of the next.
            free[class].set(unsafe { ptr::with_exposed_provenance::<usize>(block).read() });
            ptr::with_exposed_provenance_mut(block)
        })
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        let address = block.expose_provenance();
        if !(START..START + SIZE).contains(&address) {
            // SAFETY: as the caller promises.
            return unsafe { System.dealloc(block, layout) };
        }
        // What another thread frees is not used again: when it does so is not the simulation's choice.
        if kernel::is_simulated() {
            let (class, size) = class(layout);
            IN_USE.set(IN_USE.get() - size);
            FREE.with(|free| {
                // SAFETY: it has room for an address, and nobody uses it any more.
                unsafe { block.cast::<usize>().write(free[class].get()) };
                free[class].set(address);
            });
        }
    }
}

/// Returns the class of blocks that are large enough, and their size.
fn class(layout: Layout) -> (usize, usize) {
    let size = layout.size().max(1);
    if size <= FINE && layout.align() <= GRAIN {
        let grains = size.div_ceil(GRAIN);
        return (grains, grains * GRAIN);
    }
    let size = size.max(layout.align()).next_power_of_two();
    (FINE / GRAIN + 1 + size.trailing_zeros() as usize, size)
}

fn new_block(size: usize, align: usize) -> *mut u8 {
    let mut end = END.get();
    if end == 0 {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE
            | libc::MAP_ANONYMOUS
            | libc::MAP_NORESERVE
            | libc::MAP_FIXED_NOREPLACE;
        let start = ptr::without_provenance_mut(START);
        // SAFETY: nothing else is there, or it fails.
        let place = unsafe { libc::mmap(start, SIZE, protection, flags, -1, 0) };
        if place.addr() != START {
            return ptr::null_mut();
        }
        end = place.expose_provenance();
    }
    // A block of a power of two is aligned to it.
    let block =
        end.next_multiple_of(align.max(GRAIN).max(if size > FINE { size.min(4096) } else { 1 }));
    END.set(block + size);
    if block + size > START + SIZE {
        return ptr::null_mut();
    }
    ptr::with_exposed_provenance_mut(block)
}
