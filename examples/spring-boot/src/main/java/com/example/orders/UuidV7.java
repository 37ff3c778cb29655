package com.example.orders;

import com.fasterxml.uuid.Generators;
import com.fasterxml.uuid.NoArgGenerator;
import java.util.UUID;
import org.hibernate.engine.spi.SharedSessionContractImplementor;
import org.hibernate.id.uuid.UuidValueGenerator;

/** Hibernate 7 has this built in: @UuidGenerator(style = VERSION_7). */
public class UuidV7 implements UuidValueGenerator {
    private static final NoArgGenerator GENERATOR = Generators.timeBasedEpochGenerator();

    @Override
    public UUID generateUuid(SharedSessionContractImplementor session) {
        return GENERATOR.generate();
    }
}
