package ackline.spark;

/** The layout of a batch as {@link Native#next} returns it. All nodes stand before all buffers; both are read from the front. */
final class Layout {
    private final long[] numbers;
    private int node = 2;
    private int buffer;

    Layout(long[] numbers) {
        this.numbers = numbers;
        // Behind the nodes and the number of buffers.
        buffer = 3 + 2 * (int) numbers[1];
    }

    int rows() {
        return (int) numbers[0];
    }

    /** Returns the number of nulls of the next array. */
    int nextNulls() {
        int nulls = (int) numbers[node + 1];
        node += 2;
        return nulls;
    }

    /** Returns the address of the next buffer; 0 if it is empty. */
    long nextAddress() {
        long address = numbers[buffer];
        buffer += 2;
        return address;
    }
}
