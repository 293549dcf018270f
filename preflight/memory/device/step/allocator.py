"""PyTorch's CUDA caching allocator, as far as one stream sees it: which blocks a sequence of requests reserves.

Follows c10/cuda/CUDACachingAllocator.cpp: sizes rounded to 512 bytes; requests up to 1 MiB served from 2 MiB segments,
others from segments of 20 MiB or, from 10 MiB on, of their own size rounded to 2 MiB; best fit; blocks split when what
is left is worth keeping; neighbours merged when freed. Cached segments are given back before an out-of-memory error is
raised, so `reserved` is bounded by `limit` as long as what is allocated fits.
"""

from __future__ import annotations

from bisect import bisect_left, insort

MIB = 2**20
MIN_BLOCK = 512
SMALL = MIB
SMALL_SEGMENT = 2 * MIB
LARGE_SEGMENT = 20 * MIB
MIN_LARGE = 10 * MIB
ROUND_LARGE = 2 * MIB
SERIALS = 32
"""Bits of a serial number."""
SERIAL = (1 << SERIALS) - 1


class MemoryBlock:
    """A stretch of a segment."""

    __slots__ = ("after", "before", "free", "freed_at", "serial", "size", "small")

    def __init__(
        self,
        size: int,
        serial: int,
        small: bool,
        free: bool = False,
        before: MemoryBlock | None = None,
        after: MemoryBlock | None = None,
    ) -> None:
        self.size, self.serial, self.small, self.free = size, serial, small, free
        self.before, self.after = before, after
        self.freed_at = 0

    @property
    def key(self) -> int:
        """What the free blocks of a pool are sorted by: their size, and then their serial number."""
        return self.size << SERIALS | self.serial


class CachingAllocator:
    """`allocated` and `reserved` bytes, and their peaks.

    `limit`: bytes that can be reserved before cached segments are given back (None: no limit). `expandable`:
    expandable_segments:True, one growing segment per pool in pages of 2 or 20 MiB. `max_split`: max_split_size_mb in
    bytes: larger blocks are not split, and serve only requests that nearly fill them. `collect`: reserved bytes above
    which large segments that have been idle for long are given back before a new one is made
    (garbage_collection_threshold, as a part of set_per_process_memory_fraction; without the latter it does nothing).
    """

    def __init__(
        self,
        limit: int | None = None,
        expandable: bool = False,
        max_split: int | None = None,
        collect: int | None = None,
    ) -> None:
        self.limit, self.expandable, self.max_split, self.collect = limit, expandable, max_split, collect
        self.allocated = self.reserved = self.peak_allocated = self.peak_reserved = 0
        self.overflow = False
        """Whether `limit` was passed although everything cached had been given back."""
        self._pools: dict[bool, list[int]] = {True: [], False: []}
        """The keys of free blocks, sorted."""
        self._blocks: dict[int, MemoryBlock] = {}
        """Serial number -> block."""
        self._tails: dict[bool, MemoryBlock | None] = {True: None, False: None}
        self._serial = 0
        self._spare: list[MemoryBlock] = []
        """Blocks that became parts of others: to make a new object takes longer than to use one again."""
        self._requests = 0
        """Large ones so far: the clock of `collect`."""
        self._idle = False
        """Whether a segment may be wholly free: one has become so since all such were given back."""

    def malloc(self, nbytes: int) -> MemoryBlock:
        size = -(-nbytes // MIN_BLOCK) * MIN_BLOCK or MIN_BLOCK
        small = size <= SMALL
        pool = self._pools[small]
        if not small:
            self._requests += 1
        at = bisect_left(pool, size << SERIALS)
        if at < len(pool) and (small or self.max_split is None or self._may_use(pool[at] >> SERIALS, size)):
            block = self._blocks[pool.pop(at) & SERIAL]
        else:
            block, at = self._reserve(size, small), len(pool)
        rest = block.size - size
        worth = rest >= MIN_BLOCK if small or self.expandable else rest > SMALL
        if worth and (small or self.max_split is None or block.size < self.max_split):
            self._serial = serial = self._serial + 1
            after = block.after
            if self._spare:
                tail = self._spare.pop()
                tail.size, tail.serial, tail.small, tail.free = rest, serial, small, True
                tail.before, tail.after = block, after
            else:
                tail = MemoryBlock(rest, serial, small, True, block, after)
            block.after = self._blocks[serial] = tail
            block.size = size
            if after is not None:
                after.before = tail
            elif self._tails[small] is block:
                self._tails[small] = tail
            insort(pool, rest << SERIALS | serial, 0, at)  # what was larger than the block is larger than its rest
        block.free = False
        self.allocated = allocated = self.allocated + block.size
        if allocated > self.peak_allocated:
            self.peak_allocated = allocated
        return block

    def _may_use(self, free: int, size: int) -> bool:
        assert self.max_split is not None
        if size < self.max_split <= free:
            return False
        return size < self.max_split or free < size + LARGE_SEGMENT

    def _reserve(self, size: int, small: bool) -> MemoryBlock:
        if self.collect is not None and self.reserved > self.collect:
            self._collect(self.reserved - self.collect)
        if self.expandable:
            return self._extend(size, small)
        segment = (
            SMALL_SEGMENT if small else LARGE_SEGMENT if size < MIN_LARGE else -(-size // ROUND_LARGE) * ROUND_LARGE
        )
        if self.limit is not None and self.reserved + segment > self.limit:
            self._give_back()
            self.overflow |= self.reserved + segment > self.limit
        self._grow(segment)
        return self._made(segment, small)

    def _made(self, size: int, small: bool) -> MemoryBlock:
        self._serial = serial = self._serial + 1
        block = self._blocks[serial] = MemoryBlock(size, serial, small)
        return block

    def _extend(self, size: int, small: bool) -> MemoryBlock:
        """Grow the pool's one segment at its end, from the free block there if there is one."""
        page = SMALL_SEGMENT if small else LARGE_SEGMENT
        tail = self._tails[small]
        spare = 0
        if tail is not None and tail.free:
            pool = self._pools[small]
            pool.pop(bisect_left(pool, tail.key))
            spare = tail.size
        more = -(-(size - spare) // page) * page
        self._grow(more)
        if tail is not None and tail.free:
            tail.size += more
            return tail
        block = self._made(more, small)
        block.before = tail
        if tail is not None:
            tail.after = block
        self._tails[small] = block
        return block

    def _grow(self, nbytes: int) -> None:
        self.reserved += nbytes
        if self.reserved > self.peak_reserved:
            self.peak_reserved = self.reserved

    def _give_back(self) -> None:
        """Release every segment that is wholly free (release_cached_blocks)."""
        if not self._idle:
            return
        self._idle = False
        for pool in self._pools.values():
            kept = []
            for key in pool:
                block = self._blocks[key & SERIAL]
                if block.before is None and block.after is None:
                    self.reserved -= block.size
                    del self._blocks[block.serial]
                else:
                    kept.append(key)
            pool[:] = kept

    def _collect(self, wanted: int) -> None:
        """Release large segments that are free and unsplit and as old as their average, until `wanted` bytes are back
        (garbage_collect_cached_blocks). Expandable segments are left alone."""
        large = [self._blocks[key & SERIAL] for key in self._pools[False]]
        idle = {one: self._requests - one.freed_at for one in large if one.before is None and one.after is None}
        while wanted > 0 and idle and not self.expandable:
            oldest = [block for block, age in idle.items() if age >= sum(idle.values()) / len(idle)]
            for block in oldest:
                del idle[block], self._blocks[block.serial]
                self._pools[False].remove(block.key)
                self.reserved -= block.size
                wanted -= block.size

    def empty_cache(self) -> None:
        """torch.cuda.empty_cache()."""
        self._give_back()

    def free(self, block: MemoryBlock) -> None:
        pool = self._pools[block.small]
        self.allocated -= block.size
        before, after = block.before, block.after
        if before is not None and before.free:
            pool.pop(bisect_left(pool, before.size << SERIALS | before.serial))
            del self._blocks[block.serial]
            before.size += block.size
            before.after = after
            if after is not None:
                after.before = before
            if self._tails[block.small] is block:
                self._tails[block.small] = before
            self._spare.append(block)
            block = before
        if after is not None and after.free:
            pool.pop(bisect_left(pool, after.size << SERIALS | after.serial))
            del self._blocks[after.serial]
            block.size += after.size
            block.after = after.after
            if after.after is not None:
                after.after.before = block
            if self._tails[block.small] is after:
                self._tails[block.small] = block
            self._spare.append(after)
        if block.before is None and block.after is None:
            self._idle = True
        block.free, block.freed_at = True, self._requests
        insort(pool, block.size << SERIALS | block.serial)
