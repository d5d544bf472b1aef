package ackline.spark;

import java.math.BigDecimal;
import java.math.BigInteger;
import java.util.List;
import org.apache.arrow.vector.types.pojo.ArrowType.ArrowTypeID;
import org.apache.arrow.vector.types.pojo.Field;
import org.apache.spark.sql.types.Decimal;
import org.apache.spark.sql.util.ArrowUtils;
import org.apache.spark.sql.vectorized.ColumnVector;
import org.apache.spark.sql.vectorized.ColumnarArray;
import org.apache.spark.sql.vectorized.ColumnarMap;
import org.apache.spark.unsafe.Platform;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * A column of all batches of a task, one after the other, in Rust's memory.
 *
 * <p>Its values are in Arrow's layout, and are read from their addresses: Arrow's own vectors would check each access,
 * and take a third of the time of a query. Spark keeps columns of its class ArrowColumnVector for later, when it runs
 * functions of Python over them, and this one shows another batch by then. Of other classes Spark copies each row
 * before it asks for the next batch.
 */
final class Column extends ColumnVector {
    private static final int DECIMAL_BYTES = 16;

    private final ArrowTypeID type;
    private final boolean hasLongOffsets;
    private final Column[] children;

    /** The object whose end frees the memory of the values: whoever holds the column holds it too. */
    @SuppressWarnings("unused")
    private final Object owner;

    private int nulls;
    /** The address of the bits that say which rows have a value; 0 if all have one, or the type is that of nulls. */
    private long validity;
    /** The address of the values, and of their offsets where values differ in length. */
    private long values;

    private long offsets;

    Column(Field field, Object owner) {
        super(ArrowUtils.fromArrowField(field));
        this.owner = owner;
        type = field.getType().getTypeID();
        hasLongOffsets = List.of(ArrowTypeID.LargeUtf8, ArrowTypeID.LargeBinary, ArrowTypeID.LargeList)
                .contains(type);
        children = field.getChildren().stream()
                .map(child -> new Column(child, owner))
                .toArray(Column[]::new);
    }

    /** Shows the next batch. */
    void load(Layout layout) {
        nulls = layout.nextNulls();
        if (type == ArrowTypeID.Null) {
            return;
        }
        validity = layout.nextAddress();
        switch (type) {
            case Utf8, LargeUtf8, Binary, LargeBinary -> {
                offsets = layout.nextAddress();
                values = layout.nextAddress();
            }
            case List, LargeList, Map -> offsets = layout.nextAddress();
            case Struct -> {}
            default -> values = layout.nextAddress();
        }
        for (Column child : children) {
            child.load(layout);
        }
    }

    /** Does nothing: Spark closes the columns after each batch, and the next batch fills them again. */
    @Override
    public void close() {}

    @Override
    public boolean hasNull() {
        return nulls > 0;
    }

    @Override
    public int numNulls() {
        return nulls;
    }

    @Override
    public boolean isNullAt(int row) {
        return nulls > 0 && (validity == 0 || !bit(validity, row));
    }

    @Override
    public boolean getBoolean(int row) {
        return bit(values, row);
    }

    @Override
    public byte getByte(int row) {
        return Platform.getByte(null, values + row);
    }

    @Override
    public short getShort(int row) {
        return Platform.getShort(null, values + (long) row * Short.BYTES);
    }

    @Override
    public int getInt(int row) {
        return Platform.getInt(null, values + (long) row * Integer.BYTES);
    }

    @Override
    public long getLong(int row) {
        return Platform.getLong(null, values + (long) row * Long.BYTES);
    }

    @Override
    public float getFloat(int row) {
        return Platform.getFloat(null, values + (long) row * Float.BYTES);
    }

    @Override
    public double getDouble(int row) {
        return Platform.getDouble(null, values + (long) row * Double.BYTES);
    }

    @Override
    public Decimal getDecimal(int row, int precision, int scale) {
        if (isNullAt(row)) {
            return null;
        }
        long at = values + (long) row * DECIMAL_BYTES;
        long low = Platform.getLong(null, at);
        if (precision <= Decimal.MAX_LONG_DIGITS()) {
            return Decimal.createUnsafe(low, precision, scale);
        }
        BigInteger high = BigInteger.valueOf(Platform.getLong(null, at + Long.BYTES));
        BigInteger unscaled = high.shiftLeft(Long.SIZE).add(new BigInteger(Long.toUnsignedString(low)));
        return Decimal.apply(new BigDecimal(unscaled, scale), precision, scale);
    }

    @Override
    public UTF8String getUTF8String(int row) {
        if (isNullAt(row)) {
            return null;
        }
        long start = offset(row);
        return UTF8String.fromAddress(null, values + start, (int) (offset(row + 1) - start));
    }

    @Override
    public byte[] getBinary(int row) {
        if (isNullAt(row)) {
            return null;
        }
        long start = offset(row);
        byte[] copy = new byte[(int) (offset(row + 1) - start)];
        Platform.copyMemory(null, values + start, copy, Platform.BYTE_ARRAY_OFFSET, copy.length);
        return copy;
    }

    @Override
    public ColumnarArray getArray(int row) {
        if (isNullAt(row)) {
            return null;
        }
        int start = (int) offset(row);
        return new ColumnarArray(children[0], start, (int) offset(row + 1) - start);
    }

    @Override
    public ColumnarMap getMap(int row) {
        if (isNullAt(row)) {
            return null;
        }
        int start = (int) offset(row);
        Column[] pairs = children[0].children;
        return new ColumnarMap(pairs[0], pairs[1], start, (int) offset(row + 1) - start);
    }

    @Override
    public ColumnVector getChild(int ordinal) {
        return children[ordinal];
    }

    private long offset(int row) {
        return hasLongOffsets
                ? Platform.getLong(null, offsets + (long) row * Long.BYTES)
                : Platform.getInt(null, offsets + (long) row * Integer.BYTES);
    }

    private static boolean bit(long address, int row) {
        return (Platform.getByte(null, address + (row >> 3)) >> (row & 7) & 1) == 1;
    }
}
