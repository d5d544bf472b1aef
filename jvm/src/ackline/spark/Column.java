package ackline.spark;

import org.apache.spark.sql.types.Decimal;
import org.apache.spark.sql.vectorized.ArrowColumnVector;
import org.apache.spark.sql.vectorized.ColumnVector;
import org.apache.spark.sql.vectorized.ColumnarArray;
import org.apache.spark.sql.vectorized.ColumnarMap;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * A column of all batches of a task, one after the other.
 *
 * <p>It is deliberately no {@link ArrowColumnVector}: Spark keeps columns of that class for later, when it runs functions
 * of Python over them, and this one shows another batch by then. Of other classes Spark copies each row before it asks
 * for the next batch.
 */
final class Column extends ColumnVector {
    private final ArrowColumnVector values;

    /** The object whose end frees the memory of the values: whoever holds the column holds it too. */
    @SuppressWarnings("unused")
    private final Object owner;

    Column(ArrowColumnVector values, Object owner) {
        super(values.dataType());
        this.values = values;
        this.owner = owner;
    }

    /** Does nothing: Spark closes the columns after each batch, and the next batch fills them again. */
    @Override
    public void close() {}

    @Override
    public boolean hasNull() {
        return values.hasNull();
    }

    @Override
    public int numNulls() {
        return values.numNulls();
    }

    @Override
    public boolean isNullAt(int row) {
        return values.isNullAt(row);
    }

    @Override
    public boolean getBoolean(int row) {
        return values.getBoolean(row);
    }

    @Override
    public byte getByte(int row) {
        return values.getByte(row);
    }

    @Override
    public short getShort(int row) {
        return values.getShort(row);
    }

    @Override
    public int getInt(int row) {
        return values.getInt(row);
    }

    @Override
    public long getLong(int row) {
        return values.getLong(row);
    }

    @Override
    public float getFloat(int row) {
        return values.getFloat(row);
    }

    @Override
    public double getDouble(int row) {
        return values.getDouble(row);
    }

    @Override
    public ColumnarArray getArray(int row) {
        return values.getArray(row);
    }

    @Override
    public ColumnarMap getMap(int row) {
        return values.getMap(row);
    }

    @Override
    public Decimal getDecimal(int row, int precision, int scale) {
        return values.getDecimal(row, precision, scale);
    }

    @Override
    public UTF8String getUTF8String(int row) {
        return values.getUTF8String(row);
    }

    @Override
    public byte[] getBinary(int row) {
        return values.getBinary(row);
    }

    @Override
    public ColumnVector getChild(int ordinal) {
        return values.getChild(ordinal);
    }
}
