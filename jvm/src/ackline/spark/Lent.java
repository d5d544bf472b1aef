package ackline.spark;

import org.apache.arrow.memory.ArrowBuf;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.memory.OwnershipTransferResult;
import org.apache.arrow.memory.ReferenceManager;

/** Memory that belongs to Rust: Arrow's vectors read it, and never free it. */
final class Lent implements ReferenceManager {
    private final BufferAllocator allocator;

    Lent(BufferAllocator allocator) {
        this.allocator = allocator;
    }

    /** Returns a buffer for Rust's memory. */
    ArrowBuf buffer(long address, long bytes) {
        return new ArrowBuf(this, null, bytes, address).writerIndex(bytes);
    }

    @Override
    public int getRefCount() {
        return 1;
    }

    @Override
    public boolean release() {
        return false;
    }

    @Override
    public boolean release(int decrement) {
        return false;
    }

    @Override
    public void retain() {}

    @Override
    public void retain(int increment) {}

    @Override
    public ArrowBuf retain(ArrowBuf source, BufferAllocator target) {
        return source;
    }

    @Override
    public ArrowBuf deriveBuffer(ArrowBuf source, long index, long length) {
        return buffer(source.memoryAddress() + index, length);
    }

    @Override
    public OwnershipTransferResult transferOwnership(ArrowBuf source, BufferAllocator target) {
        return new OwnershipTransferResult() {
            @Override
            public boolean getAllocationFit() {
                return true;
            }

            @Override
            public ArrowBuf getTransferredBuffer() {
                return source;
            }
        };
    }

    @Override
    public BufferAllocator getAllocator() {
        return allocator;
    }

    @Override
    public long getSize() {
        return 0;
    }

    @Override
    public long getAccountedSize() {
        return 0;
    }
}
