//! How often each step allocates. In a binary of its own: the allocator that counts this would be among the
//! instructions that `tests/instructions.rs` counts.

mod steps;

use steps::STEPS;

#[test]
fn no_step_allocates_more_often_than_it_did() {
    println!("\n| one step | allocations | bytes |\n|---|--:|--:|");
    for step in STEPS {
        let (mut member, now, event) = (step.set)();
        let mut actions = vec![];
        let counted = allocation_counter::measure(|| actions = member.step(now, event));
        println!("| {} | {} | {} |", step.name, counted.count_total, counted.bytes_total);
        assert_eq!(counted.count_total, step.allocations, "{}", step.name);
    }
}
